"""What the commands that draw share: options, and what comes before and after a picture."""

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import click

from streamkpca.command.models import read_fitted
from streamkpca.command.options import FILE, PICTURE, RESULTS, grouped, json_option, option
from streamkpca.command.pictures import check_picture, save_picture
from streamkpca.command.terminal import print_json

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from streamkpca.streaming import StreamingKernelPCA

PICTURE_STREAMS: Final = (
    "Standard output: where the picture is. Standard error: progress, on terminals; warnings and errors, a line each."
)


def pair_of(
    kind: Callable[[str], Any], what: str, *, separator: str, least: float | None = None, most: float = math.inf
) -> Callable[..., Any]:
    """Make a callback that reads two values of a kind.

    Parameters
    ----------
    kind : callable
        `int`, `float` or `str`.
    what : str
        What is expected, for the error text.
    separator : str
        Between the two.
    least, most : float or None, float
        Between what they lie, if `least` is given.

    Returns
    -------
    callable
    """

    def read(context: click.Context, parameter: click.Parameter, value: str | None) -> tuple[Any, Any] | None:
        if value is None:
            return None
        try:
            first, second = (kind(part.strip()) for part in value.split(separator))
            if least is not None and not (least <= first <= most and least <= second <= most):
                raise ValueError(value)
        except ValueError:
            raise click.BadParameter(f"{value!r} is not {what}.", context, parameter) from None
        return first, second

    return read


picture_options = grouped(
    option("--save", required=True, type=FILE, metavar="FILE", section=RESULTS, help="Ends in .png, .svg or .pdf."),
    option(
        "--size",
        default="7x4.5",
        show_default=True,
        metavar="WxH",
        section=PICTURE,
        callback=pair_of(
            float, "two sizes in inches, from 1 to 100, such as 7x4.5", separator="x", least=1.0, most=100.0
        ),
        help="Width and height in inches.",
    ),
    json_option,
)


def learned_for_picture(model: str, save: str, *files: str) -> "StreamingKernelPCA":
    """Read a model after making sure that its picture can be written.

    Parameters
    ----------
    model : str
    save : str
        Where the picture will go.
    *files : str
        What else is read.

    Returns
    -------
    StreamingKernelPCA

    Raises
    ------
    BadInput
        As `check_picture` and `read_fitted`.
    """
    check_picture(save, [model, *files])
    return read_fitted(model)


def finish_picture(figure: "Figure", save: str, kind: str, *, n_rows: int | None = None, as_json: bool) -> None:
    """Save a picture, and say where it is.

    Parameters
    ----------
    figure : Figure
    save : str
        Where it goes.
    kind : str
        What it shows.
    n_rows : int, optional
        Of how many rows.
    as_json : bool
        Whether to say it to machines.
    """
    save_picture(figure, save)
    if as_json:
        print_json({"picture": save, "kind": kind} | ({} if n_rows is None else {"rows": n_rows}))
    else:
        click.echo(f"Picture: {save}")
