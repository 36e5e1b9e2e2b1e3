"""The commands that draw models: plot spectrum, atoms, sparsity, drift."""

import click

from streamkpca.command.models import learned_columns
from streamkpca.command.options import FILE, MODEL, PICTURE, Command, model_option, option
from streamkpca.command.picture_options import (
    PICTURE_STREAMS,
    finish_picture,
    learned_for_picture,
    pair_of,
    picture_options,
)
from streamkpca.command.pictures import drift_looks, make_axes
from streamkpca.command.terminal import one_line


@click.command(
    cls=Command,
    short_help="Variance along each axis.",
    examples=[("streamkpca plot spectrum --model plant.npz --save spectrum.png", "A bar for each component.")],
    streams=PICTURE_STREAMS,
)
@model_option
@picture_options
def spectrum(model: str, save: str, size: tuple[float, float], as_json: bool) -> None:
    """Draw the variance along each axis, what they explain together, and bounds that hold."""
    from streamkpca.plots import draw_spectrum

    learner = learned_for_picture(model, save)
    figure, axes = make_axes(size)
    draw_spectrum(
        learner.eigenvalues_,
        explained=learner.explained_variance_ratio_,
        bounds=learner.eigenvalue_bounds_,
        ax=axes,
    )
    finish_picture(figure, save, "spectrum", as_json=as_json)


@click.command(
    cls=Command,
    short_help="The rows that the model keeps.",
    examples=[
        ("streamkpca plot atoms --model plant.npz --save atoms.png", "Lines over the columns."),
        ("streamkpca plot atoms --model digits.npz --shape 16x16 --save atoms.png", "Images."),
    ],
    streams=PICTURE_STREAMS,
)
@model_option
@option(
    "--shape",
    metavar="HxW",
    section=PICTURE,
    callback=pair_of(int, "a height and a width, such as 16x16", separator="x", least=1),
    help="Rows are images of so many lines and columns.  [default: draw lines]",
)
@option(
    "--most",
    default=40,
    show_default=True,
    metavar="N",
    type=click.IntRange(min=1),
    section=PICTURE,
    help="Draw no more atoms than this, the heaviest.",
)
@picture_options
def atoms(
    model: str, shape: tuple[int, int] | None, most: int, save: str, size: tuple[float, float], as_json: bool
) -> None:
    """Draw the atoms, the rows that a model keeps: as lines over the columns, or as images."""
    from streamkpca.plots import draw_atoms

    learner = learned_for_picture(model, save)
    figure, axes = make_axes(size)
    names = None if shape else learned_columns(learner)
    with one_line():
        draw_atoms(learner.atoms_, weights=learner.weights_, shape=shape, most=most, feature_names=names, ax=axes)
    finish_picture(figure, save, "atoms", as_json=as_json)


@click.command(
    cls=Command,
    short_help="Active atoms against the error of reconstruction.",
    examples=[("streamkpca plot sparsity --model plant.npz --save path.pdf", "Active atoms against error.")],
    streams=PICTURE_STREAMS,
)
@model_option
@picture_options
def sparsity(model: str, save: str, size: tuple[float, float], as_json: bool) -> None:
    """Draw how the noise variance trades active atoms for the error of reconstruction."""
    from streamkpca.plots import draw_sparsity_path

    learner = learned_for_picture(model, save)
    figure, axes = make_axes(size)
    with one_line():
        draw_sparsity_path(learner.sparsity_path(), noise_variance=learner.noise_variance_, ax=axes)
    finish_picture(figure, save, "sparsity", as_json=as_json)


@click.command(
    cls=Command,
    short_help="Where in the stream the atoms come from.",
    examples=[
        ("streamkpca plot drift --model day1.npz --model day2.npz --save drift.png", "Two looks at one stream."),
    ],
    streams=PICTURE_STREAMS,
)
@option(
    "--model",
    "models",
    required=True,
    multiple=True,
    type=FILE,
    metavar="FILE",
    section=MODEL,
    help="A saved model; again for each later look at the same stream.",
)
@picture_options
def drift(models: tuple[str, ...], save: str, size: tuple[float, float], as_json: bool) -> None:
    """Draw where in the stream the atoms come from, in one model or several saved as the stream went on."""
    from streamkpca.plots import draw_atom_drift

    looks = drift_looks([(model, learned_for_picture(model, save)) for model in models])
    figure, axes = make_axes(size)
    draw_atom_drift(*looks, ax=axes)
    finish_picture(figure, save, "drift", as_json=as_json)
