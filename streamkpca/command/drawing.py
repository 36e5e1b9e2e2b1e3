"""The command that draws: plot, with a command for each kind of picture."""

import click

from streamkpca.command.model_drawing import atoms, drift, sparsity, spectrum
from streamkpca.command.row_drawing import contours, novelty, projections
from streamkpca.command.terminal import Ordered


@click.group(cls=Ordered, short_help="Draw a saved model, or rows that it is asked about.")
def plot() -> None:
    """Draw a saved model, or rows that it is asked about.

    Of a model alone: spectrum, atoms, sparsity, drift.

    Of rows of a FILE: novelty, projections, contours.

    Each kind has options of its own: streamkpca plot KIND --help.
    """


for _kind in (spectrum, atoms, sparsity, drift, novelty, projections, contours):
    plot.add_command(_kind)
