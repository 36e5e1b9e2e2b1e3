"""The parameters of a stream, checked."""

from dataclasses import dataclass
from typing import Any, Self

from streamkpca._core.params import check_choice, check_integer, check_real
from streamkpca.components.refit import RefitSettings
from streamkpca.kernels import Kernel, kernel_from

# A refit of m atoms takes as long as recording 10 m rows, or 1,300 where they are few.
_ROWS_AN_ATOM, _FEW_ATOMS = 128, 128


@dataclass(frozen=True)
class StreamSettings:
    """What a stream is told when rows come; parameters are those of `StreamingKernelPCA`."""

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

    def refit_interval(self, n_atoms: int) -> float:
        """Say how many rows may come between refits.

        Parameters
        ----------
        n_atoms : int

        Returns
        -------
        float
            What was asked for; else so many that refits, O(m^3), take little of the time that m^2 a row takes, and at
            the most a quarter of the half-life.
        """
        if self.refit_every is not None:
            return self.refit_every
        rows = _ROWS_AN_ATOM * max(n_atoms, _FEW_ATOMS)
        return rows if self.half_life is None else min(rows, self.half_life / 4.0)

    @classmethod
    def checked(
        cls,
        *,
        n_components: Any,
        kernel: Any,
        max_atoms: Any,
        tolerance: Any,
        noise_variance: Any,
        n_active: Any,
        axes: Any,
        center: Any,
        half_life: Any,
        block_size: Any,
        refit_every: Any,
        reservoir_size: Any,
        on_bad_rows: Any,
        random_state: Any,
        dtype: Any,
        where: str,
    ) -> Self:
        """Check the parameters of a stream.

        Parameters
        ----------
        n_components, kernel, max_atoms, tolerance, noise_variance, n_active, axes, center, half_life, block_size
            As `StreamingKernelPCA` was given them.
        refit_every, reservoir_size, on_bad_rows, random_state, dtype
            As above.
        where : str
            Who asks, for the error text.

        Returns
        -------
        StreamSettings

        Raises
        ------
        TypeError, ValueError
            One of them makes no sense.
        """
        if max_atoms is not None:
            max_atoms = check_integer("max_atoms", max_atoms, least=1, where=where)
        tolerance = check_real("tolerance", tolerance, least=0.0, most=1.0, open_above=True, where=where)
        if half_life is not None:
            half_life = check_real("half_life", half_life, least=0.0, open_below=True, where=where)
        if random_state is not None:
            random_state = check_integer("random_state", random_state, least=0, most=None, where=where)
        if max_atoms is not None and isinstance(n_active, int) and n_active > max_atoms:
            raise ValueError(
                f"{where}: n_active={n_active} atoms cannot be active with max_atoms={max_atoms}; "
                "ask for fewer, or raise max_atoms"
            )
        # Who asks for every row wants batch kernel PCA: nothing is to be pruned unless a noise variance is named.
        exact = max_atoms is None and tolerance == 0.0 and axes != "likelihood"
        return cls(
            kernel=kernel_from(kernel, where=where),
            max_atoms=max_atoms,
            tolerance=tolerance,
            half_life=half_life,
            block_size=check_integer("block_size", block_size, least=2, where=where),
            refit_every=None
            if isinstance(refit_every, str) and refit_every == "auto"
            else check_integer("refit_every", refit_every, least=1, where=where),
            reservoir_size=check_integer("reservoir_size", reservoir_size, least=0, where=where),
            skips_bad_rows=check_choice("on_bad_rows", on_bad_rows, choices=("raise", "skip"), where=where) == "skip",
            random_state=random_state,
            dtype=check_choice("dtype", dtype, choices=("float64", "float32"), where=where),
            refit=RefitSettings.checked(
                n_components=n_components,
                center=center,
                noise_variance=None if exact and noise_variance == "auto" else noise_variance,
                n_active=n_active,
                axes=axes,
                where=where,
            ),
        )
