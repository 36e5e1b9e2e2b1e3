"""The settings that a stream works with: the parameters of its model, checked."""

from dataclasses import dataclass
from typing import Any, Self

from streamkpca.components.refit import RefitSettings
from streamkpca.kernels import Kernel
from streamkpca.stream.parameters import PARAMETERS

# A refit of m atoms takes as long as recording 10 m rows, or 1,300 rows where m is small.
_ROWS_PER_ATOM, _FEW_ATOMS = 128, 128


@dataclass(frozen=True)
class StreamSettings:
    """The checked parameters of a stream; where `refit_every` is None, the interval grows with the atoms."""

    kernel: Kernel
    max_atoms: int | None
    tolerance: float
    half_life: float | None
    block_size: int
    refit_every: int | None
    reservoir_size: int
    skips_bad_rows: bool
    random_state: int | None
    refit: RefitSettings
    dtype: str = "float64"
    moves_atoms: bool = False
    on_missing: str = "raise"

    @property
    def has_gaps(self) -> bool:
        """Whether rows may have gaps, over which kernel values are integrated."""
        return self.on_missing == "marginal"

    @property
    def admits_nan(self) -> bool:
        """Whether rows with NaN are used or left out, and not refused as `skips_bad_rows` may say."""
        return self.on_missing != "raise"

    def refit_interval(self, n_atoms: int) -> float:
        """Return how many rows may come between two refits.

        By default the interval keeps the cost of refits, O(m^3) each, small beside that of rows, O(m^2) each, and it
        is at most a quarter of the half-life.
        """
        if self.refit_every is not None:
            return self.refit_every
        rows = _ROWS_PER_ATOM * max(n_atoms, _FEW_ATOMS)
        return rows if self.half_life is None else min(rows, self.half_life / 4.0)

    @classmethod
    def checked(cls, *, where: str, **parameters: Any) -> Self:
        """Check all of `PARAMETERS`, each alone and those that depend on each other; errors begin with `where`."""
        value = {parameter.name: parameter.checked(parameters[parameter.name], where) for parameter in PARAMETERS}
        max_atoms, n_active, noise_variance = value["max_atoms"], value["n_active"], value["noise_variance"]
        if max_atoms is not None and n_active is not None and n_active > max_atoms:
            raise ValueError(
                f"{where}: n_active={n_active} atoms cannot be active with max_atoms={max_atoms}; "
                "ask for fewer, or raise max_atoms"
            )
        # Keeping every row means batch kernel PCA: nothing is pruned unless the user names a noise variance.
        exact = max_atoms is None and value["tolerance"] == 0.0 and value["axes"] != "likelihood"
        return cls(
            kernel=value["kernel"],
            max_atoms=max_atoms,
            tolerance=value["tolerance"],
            half_life=value["half_life"],
            block_size=value["block_size"],
            refit_every=None if value["refit_every"] == "auto" else value["refit_every"],
            reservoir_size=value["reservoir_size"],
            skips_bad_rows=value["on_bad_rows"] == "skip",
            on_missing=value["on_missing"],
            random_state=value["random_state"],
            dtype=value["dtype"],
            moves_atoms=value["atoms"] == "moved" and max_atoms is not None,
            refit=RefitSettings.checked(
                n_components=value["n_components"],
                center=value["center"],
                noise_variance=None if exact and noise_variance == "auto" else noise_variance,
                n_active=n_active,
                axes=value["axes"],
                where=where,
            ),
        )
