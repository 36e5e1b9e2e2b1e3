"""The parameters of a model in one table, and the settings that a stream works with: their checked values.

The command reads the table for help and completion without the compiled loops.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Self

from streamkpca._core import parameters as checks
from streamkpca.errors import name_errors

if TYPE_CHECKING:
    from streamkpca.components.refit import RefitSettings
    from streamkpca.kernels import Kernel


@dataclass(frozen=True)
class Parameter:
    """A parameter of `StreamingKernelPCA`; the estimator, River's classes and the command read it here.

    `check(value)` returns the checked value. `words` are values beside numbers. The command reads text as one of
    `numbers`, or offers `choices`; `unit` and `help` appear in its help. `concerns_axes`: it decides only the axes.
    """

    name: str
    default: Any
    check: Callable[..., Any]
    help: str
    unit: str = ""
    numbers: tuple[type[int] | type[float], ...] = (int,)
    words: tuple[str | None, ...] = ()
    choices: tuple[str, ...] = ()
    concerns_axes: bool = False

    def check_value(self, value: Any) -> Any:
        """Return the value that a model works with, or refuse it."""
        is_word = (value is None or isinstance(value, str)) and value in self.words
        return value if is_word else self.check(value)


def _check_kernel(value: Any) -> "Kernel":
    """Check a kernel with the module of all kernels; reading this table must not load their compiled loops."""
    from streamkpca.kernels import kernel_from

    return kernel_from(value)


def _choice(name: str, choices: tuple[str, ...], *, help: str, concerns_axes: bool = False) -> Parameter:
    """Make a parameter that is one of some words, the first by default."""
    check = partial(checks.check_choice, name, choices=choices)
    return Parameter(name, choices[0], check, help, choices=choices, concerns_axes=concerns_axes)


# A search compares all rows of a block with each other, in a matrix of at most 128 MiB.
_LARGEST_BLOCK = 4096

_share = partial(checks.check_real, least=0.0, most=1.0, open_above=True)
_axes_only = partial(Parameter, concerns_axes=True)

# In the order of the estimator's signature.
PARAMETERS = (
    _axes_only(
        "n_components", 10, checks.check_n_components, unit="N|SHARE", numbers=(int, float),
        help="Principal components; a share such as 0.95: as many as explain that share of the variance.",
    ),
    Parameter("kernel", "rbf", _check_kernel, unit="KERNEL", help="A name such as rbf, or a kernel as JSON."),
    Parameter(
        "max_atoms", 256, partial(checks.check_integer, "max_atoms", least=1), unit="N", words=(None,),
        help="Most atoms; none: as many as the tolerance needs.",
    ),
    _choice(
        "atoms", ("moved", "rows"), help="Whether atoms move from their rows to where they explain more, or stay rows."
    ),
    Parameter(
        "tolerance", 1e-3, partial(_share, "tolerance"), unit="SHARE", numbers=(float,),
        help="Share of the variance that may stay unexplained.",
    ),
    _axes_only(
        "noise_variance", "auto", checks.check_noise_variance, unit="NUMBER", numbers=(float,), words=("auto", None),
        help="The larger, the fewer atoms projections use; auto: as few as hold 99% of the variance; none: all atoms.",
    ),
    _axes_only(
        "n_active", None, partial(checks.check_integer, "n_active", least=1), unit="N", words=(None,),
        help="Atoms that projections use, instead of a noise variance.",
    ),
    _choice(
        "axes", ("ritz", "likelihood"), concerns_axes=True,
        help="The best axes in the span of the active atoms (ritz), or those of the likelihood's model.",
    ),
    Parameter("center", True, partial(checks.check_flag, "center"), help="Subtract the mean in feature space."),
    Parameter(
        "half_life", None, partial(checks.check_real, "half_life", least=0.0, open_below=True), unit="ROWS",
        numbers=(float,), words=(None,), help="Rows after which a row's weight has halved; none: never.",
    ),
    Parameter(
        "block_size", 512, partial(checks.check_integer, "block_size", least=2, most=_LARGEST_BLOCK), unit="ROWS",
        help="Rows learned at a time.",
    ),
    Parameter(
        "refit_every", "auto", partial(checks.check_integer, "refit_every", least=1), unit="ROWS", words=("auto",),
        help="Rows between two refits; auto: 128 for each atom, at least 16384.",
    ),
    Parameter(
        "reservoir_size", 512, partial(checks.check_integer, "reservoir_size", least=0), unit="ROWS",
        help="Rows of the random sample from which the threshold of alarms comes; 0: no sample.",
    ),
    _choice(
        "missing", ("raise", "skip", "marginal"),
        help="Rows with gaps (NaN): refuse them, leave them out, or use what they have.",
    ),
    Parameter(
        "random_state", 0, partial(checks.check_integer, "random_state", least=0, most=None), unit="SEED",
        words=(None,), help="Seed of that sample; none: a new one each time.",
    ),
)  # fmt: skip


def check_parameters(**given: Any) -> dict[str, Any]:
    """Check some of `PARAMETERS`, each alone."""
    return {item.name: item.check_value(given[item.name]) for item in PARAMETERS if item.name in given}


@dataclass(frozen=True)
class Settings:
    """The checked parameters of a stream, made by `make`.

    Parameters
    ----------
    kernel, max_atoms, atoms, tolerance, half_life, block_size, refit_every, reservoir_size, random_state
        As of `StreamingKernelPCA`.
    missing
        As of `StreamingKernelPCA`; the rows of `advance` are usable already.
    refit : RefitSettings
        The parameters that decide the axes and nothing else.

    Examples
    --------
    >>> from streamkpca.stream import Settings
    >>> settings = Settings.make(missing="marginal", max_atoms=64)
    >>> settings.moves_atoms, settings.has_gaps
    (True, True)
    """

    kernel: "Kernel"
    max_atoms: int | None
    tolerance: float
    half_life: float | None
    block_size: int
    refit_every: int | str
    reservoir_size: int
    random_state: int | None
    refit: "RefitSettings"
    atoms: str = "rows"
    missing: str = "raise"

    @property
    def moves_atoms(self) -> bool:
        """Whether atoms move; without a budget, none is moved."""
        return self.atoms == "moved" and self.max_atoms is not None

    @property
    def has_gaps(self) -> bool:
        """Whether rows may have gaps, over which kernel values are integrated."""
        return self.missing == "marginal"

    @classmethod
    @name_errors
    def make(cls, **parameters: Any) -> Self:
        """Check parameters of `StreamingKernelPCA`, each alone and those that depend on each other.

        Parameters
        ----------
        **parameters
            By their names; those that are not given have their defaults.

        Raises
        ------
        TypeError, ValueError
            A parameter is invalid, or there is none of this name.
        """
        from streamkpca.components.refit import RefitSettings

        defaults = {item.name: item.default for item in PARAMETERS}
        if unknown := parameters.keys() - defaults.keys():
            raise TypeError(
                f"expected parameters of StreamingKernelPCA but got {', '.join(sorted(unknown))}; "
                f"the parameters are {', '.join(defaults)}"
            )
        values = check_parameters(**(defaults | parameters))
        refit = {item.name: values.pop(item.name) for item in PARAMETERS if item.concerns_axes}
        max_atoms, n_active = values["max_atoms"], refit["n_active"]
        if max_atoms is not None and n_active is not None and n_active > max_atoms:
            raise ValueError(
                f"n_active={n_active} atoms cannot be active with max_atoms={max_atoms}; "
                "ask for fewer, or raise max_atoms"
            )
        # Keeping every row means batch kernel PCA: nothing is pruned unless the user names a noise variance.
        exact = max_atoms is None and values["tolerance"] == 0.0 and refit["axes"] != "likelihood"
        if exact and refit["noise_variance"] == "auto":
            refit["noise_variance"] = None
        return cls(refit=RefitSettings(center=values.pop("center"), **refit).consistent(), **values)
