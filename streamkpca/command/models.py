"""Models in files: what the commands do with checkpoints."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from streamkpca.checkpoints.files import write_durably
from streamkpca.command.runs import one_line
from streamkpca.command.terminal import BadInput
from streamkpca.tables import Table

if TYPE_CHECKING:
    from streamkpca.streaming import StreamingKernelPCA


def read_model(path: str) -> "StreamingKernelPCA":
    """Read a model that was saved.

    Parameters
    ----------
    path : str

    Returns
    -------
    StreamingKernelPCA

    Raises
    ------
    BadInput
        There is no such file, it is no sound checkpoint, or its kernel has functions, which are never stored.
    """
    from streamkpca.streaming import StreamingKernelPCA

    with one_line():
        return StreamingKernelPCA.load(path)


def read_fitted(path: str) -> "StreamingKernelPCA":
    """Read a model that has learned rows.

    Parameters
    ----------
    path : str

    Returns
    -------
    StreamingKernelPCA

    Raises
    ------
    BadInput
        As `read_model`, or it has seen no row.
    """
    model = read_model(path)
    if not model.__sklearn_is_fitted__():
        raise BadInput(
            f"{path}: this model has seen no rows yet; let it learn some: streamkpca fit FILE --model {path}"
        )
    return model


def save_model(model: "StreamingKernelPCA", path: str) -> None:
    """Save a model, in place of what may be there.

    Parameters
    ----------
    model : StreamingKernelPCA
    path : str

    Raises
    ------
    BadInput
        The file cannot be written; what was there is untouched.
    """
    with one_line():
        model.save(path)


def check_writable(path: str, inputs: Sequence[str]) -> None:
    """Refuse a place for a model before the work begins, and not after.

    Parameters
    ----------
    path : str
        Where the model will go.
    inputs : sequence of str
        Files that are read meanwhile.

    Raises
    ------
    BadInput
        It is a folder, in no folder, or one of the inputs.
    """
    target = Path(path)
    if target.is_dir() or not target.absolute().parent.is_dir():
        raise BadInput(f"{path}: expected the name of a file in a folder that is there")
    if any(target.resolve() == Path(name).resolve() for name in inputs):
        raise BadInput(f"{path}: is read as input and cannot take the model; give it another name")


def check_columns(model: "StreamingKernelPCA", path: str, table: Table) -> None:
    """Refuse a table whose columns are not those that a model has learned.

    Parameters
    ----------
    model : StreamingKernelPCA
    path : str
        The model's file.
    table : Table

    Raises
    ------
    BadInput
        Another number of columns.
    """
    found = len(table.columns.wanted)
    if found != model.n_features_in_:
        raise BadInput(
            f"{table.source}: expected {model.n_features_in_} columns, as {path} has learned, but got {found}; "
            "choose them with --columns or --drop"
        )


def merge_models(paths: Sequence[str]) -> "StreamingKernelPCA":
    """Read models and merge them.

    Parameters
    ----------
    paths : sequence of str

    Returns
    -------
    StreamingKernelPCA

    Raises
    ------
    BadInput
        One cannot be read, or they do not go together.
    """
    from streamkpca.merging import merge

    models = [read_fitted(path) for path in paths]
    with one_line():
        return merge(*models)


def export_model(model: "StreamingKernelPCA", path: str, *, double: bool, name: str, quantile: float | None) -> None:
    """Write a model in another language.

    Parameters
    ----------
    model : StreamingKernelPCA
        Fitted.
    path : str
        Ends in ``.onnx`` or ``.c``.
    double : bool
        Double precision, else single.
    name : str
        For C: what names begin with.
    quantile : float or None
        For C: share of rows below the threshold of novelty; None for no threshold.

    Raises
    ------
    BadInput
        Another ending, a model that cannot be exported, or a library is missing.
    """
    from streamkpca.export import to_c, to_onnx

    suffix = Path(path).suffix.lower()
    with one_line():
        if suffix == ".onnx":
            try:
                graph = to_onnx(model, dtype="float64" if double else "float32")
            except ImportError as error:
                raise BadInput(str(error)) from None
            contents = graph.SerializeToString(deterministic=True)
        elif suffix == ".c":
            threshold = None if quantile is None else model.novelty_threshold(quantile)
            contents = to_c(model, name=name, dtype="double" if double else "float", threshold=threshold).encode()
        else:
            raise BadInput(f"{path}: exports are written as .onnx or .c; end the name so")
        write_durably(path, lambda file: file.write(contents))
