"""The settings that a stream works with: the parameters of its model, checked."""

from dataclasses import dataclass
from typing import Any, Self

from streamkpca.components.refit import RefitSettings
from streamkpca.kernels import Kernel
from streamkpca.stream.parameters import PARAMETERS

# A refit of m atoms takes as long as recording 10 m rows, or 1,300 rows where m is small.
_ROWS_PER_ATOM, _FEW_ATOMS = 128, 128


@dataclass(frozen=True)
<<<<<<< HEAD
class Parameter:
    """A parameter of `StreamingKernelPCA`; the estimator, River's classes and the command read it here.

    `check(value, where=...)` returns the checked value. `words` are values beside numbers. The command reads text as
    one of `numbers`, or offers `choices`; `unit` and `help` appear in its help. `can_change`: within a stream.
    `concerns_axes`: it decides the axes and nothing else.
    """

    name: str
    default: Any
    check: Callable[..., Any]
    help: str
    unit: str = ""
    numbers: tuple[type[int] | type[float], ...] = (int,)
    words: tuple[str | None, ...] = ()
    choices: tuple[str, ...] = ()
    can_change: bool = True
    concerns_axes: bool = False

    def checked(self, value: Any, where: str) -> Any:
        """Return the value that a model works with, or refuse it with an error that begins with `where`."""
        is_word = (value is None or isinstance(value, str)) and value in self.words
        return value if is_word else self.check(value, where=where)


def _check_noise_variance(value: Any, *, where: str) -> Any:
    return RefitSettings.checked(
        n_components=1, center=True, noise_variance=value, n_active=None, axes="ritz", where=where
    ).noise_variance


def _choice(
    name: str, choices: tuple[str, ...], *, help: str, can_change: bool = True, concerns_axes: bool = False
) -> Parameter:
    """Make a parameter that is one of some words, the first by default."""
    check = partial(check_choice, name, choices=choices)
    return Parameter(name, choices[0], check, help, choices=choices, can_change=can_change, concerns_axes=concerns_axes)


# In the order of the estimator's signature.
PARAMETERS = (
    Parameter(
        "n_components",
        10,
        check_n_components,
        help="Principal components; a share such as 0.95: as many as explain that share of the variance.",
        unit="N|SHARE",
        numbers=(int, float),
        concerns_axes=True,
    ),
    Parameter(
        "kernel",
        "rbf",
        kernel_from,
        help="A name, or an expression: 'RBF(gamma=0.5) + Linear()', 'RBF().in_units(std)'.",
        unit="KERNEL",
        can_change=False,
    ),
    Parameter(
        "max_atoms",
        256,
        partial(check_integer, "max_atoms", least=1),
        help="Most rows kept as atoms; none: as many as the tolerance needs.",
        unit="N",
        words=(None,),
    ),
    _choice(
        "atoms",
        ("moved", "rows"),
        help="Whether atoms move from their rows to where they explain more, or stay rows.",
    ),
    Parameter(
        "tolerance",
        1e-3,
        partial(check_real, "tolerance", least=0.0, most=1.0, open_above=True),
        help="Share of the energy that may stay unexplained.",
        unit="SHARE",
        numbers=(float,),
    ),
    Parameter(
        "noise_variance",
        "auto",
        _check_noise_variance,
        help="Sparsity of the projections: the larger, the fewer atoms they use; none: all atoms.",
        unit="NUMBER",
        numbers=(float,),
        words=("auto", None),
        concerns_axes=True,
    ),
    Parameter(
        "n_active",
        None,
        partial(check_integer, "n_active", least=1),
        help="Atoms that projections use, instead of a noise variance.",
        unit="N",
        words=(None,),
        concerns_axes=True,
    ),
    _choice(
        "axes",
        ("ritz", "likelihood"),
        help="The best axes in the span of the active atoms (ritz), or those of the likelihood's model.",
        concerns_axes=True,
    ),
    Parameter("center", True, partial(check_flag, "center"), help="Subtract the mean in feature space."),
    Parameter(
        "half_life",
        None,
        partial(check_real, "half_life", least=0.0, open_below=True),
        help="Rows after which a row's weight has halved; none: never.",
        unit="ROWS",
        numbers=(float,),
        words=(None,),
    ),
    Parameter(
        "block_size",
        512,
        partial(check_integer, "block_size", least=2),
        help="Rows learned at a time.",
        unit="ROWS",
        can_change=False,
    ),
    Parameter(
        "refit_every",
        "auto",
        partial(check_integer, "refit_every", least=1),
        help="Rows between two refits; auto: 128 for each atom, at least 16384.",
        unit="ROWS",
        words=("auto",),
    ),
    Parameter(
        "reservoir_size",
        512,
        partial(check_integer, "reservoir_size", least=0),
        help="Rows of the random sample from which the threshold of alarms comes; 0: no sample.",
        unit="ROWS",
        can_change=False,
    ),
    _choice("on_bad_rows", ("raise", "skip"), help="Rows with NaN or infinity: refuse them, or leave them out."),
    Parameter(
        "random_state",
        0,
        partial(check_integer, "random_state", least=0, most=None),
        help="Seed of that sample; none: a new one each time.",
        unit="SEED",
        words=(None,),
        can_change=False,
    ),
    _choice(
        "dtype",
        ("float64", "float32"),
        help="Precision in which rows are kept; float32 halves the memory that they take.",
        can_change=False,
    ),
)


@dataclass(frozen=True)
=======
>>>>>>> 897eaf11481f62ef19f2494a5650917dd283d54c
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
            random_state=value["random_state"],
            dtype=value["dtype"],
            moves_atoms=value["atoms"] == "moved",
            refit=RefitSettings.checked(
                n_components=value["n_components"],
                center=value["center"],
                noise_variance=None if exact and noise_variance == "auto" else noise_variance,
                n_active=n_active,
                axes=value["axes"],
                where=where,
            ),
        )
