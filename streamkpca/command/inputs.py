"""Tables that the commands read: opened before the work begins, with the columns that a model has learned."""

import sys
from collections.abc import Iterator, Sequence
from typing import Any

from streamkpca.command.terminal import BadInput, one_line, print_warning
from streamkpca.tables import Chunk, Table, check_same_columns, open_table, regroup

STDIN = "-"
_READING = ("array", "columns", "drop", "header", "delimiter", "time", "on_bad_rows")


def reading_options(options: dict[str, Any]) -> dict[str, Any]:
    """Pick those of a command's options that say how to read a table.

    Parameters
    ----------
    options : dict
        All options, by parameter name.

    Returns
    -------
    dict
        Keyword arguments of `open_table`.
    """
    return {name: options[name] for name in _READING}


def open_tables(files: Sequence[str], reading: dict[str, Any], *, learned: Sequence[str] | None = None) -> list[Table]:
    """Open all files before the first row is learned, so that a mistake in the last costs nothing.

    Parameters
    ----------
    files : sequence of str
        Paths; ``-`` is standard input.
    reading : dict
        Keyword arguments of `open_table`.
    learned : sequence of str, optional
        Columns to choose where a file names its own and the user has chosen none.

    Returns
    -------
    list of Table

    Raises
    ------
    BadInput
        A file that cannot be read, or whose columns are not those of the first.
    """
    if list(files).count(STDIN) > 1:
        raise BadInput("- (standard input) can be read only once; name it once")
    if reading.get("follow") and len(files) > 1:
        raise BadInput(f"--follow: the end of {files[0]} never comes; name one file")
    tables: list[Table] = []
    with one_line():
        for file in files:
            options = reading | {"array": None} if file == STDIN and len(files) > 1 else reading
            tables.append(_open(file, options | {"learned": learned or ()}))
            check_same_columns(tables[0], tables[-1])
    return tables


def open_pair(
    file: str, train: str, labels: str | None, train_array: str | None, reading: dict[str, Any]
) -> tuple[Table, Table]:
    """Open the table to be scored and the one to learn from.

    Parameters
    ----------
    file, train : str
        Paths; only `file` may be ``-``.
    labels : str or None
        Label column of `file`; where `train` has it too, it is left out there.
    train_array : str or None
        Array of an npz `train`.
    reading : dict
        Keyword arguments of `open_table`.

    Returns
    -------
    target, source : Table

    Raises
    ------
    BadInput
        A file that cannot be read, or columns that differ.
    """
    if train == STDIN:
        raise BadInput("--train -: standard input cannot be learned first; write it to a file and name that")
    options = reading | {"array": train_array or reading["array"], "follow": False}
    (source,) = open_tables([train], options)
    learned = [name for name in source.columns.feature_names if name != labels] if source.columns.named else None
    (target,) = open_tables([file], reading | {"labels": labels}, learned=learned)
    same_width = len(source.columns.names) == len(target.columns.names)
    named = source.columns.named and labels in source.columns.names
    if labels is not None and target.columns.labels is not None and (named or same_width):
        (source,) = open_tables([train], options | {"drop": (*reading["drop"], labels)})
    with one_line():
        check_same_columns(source, target)
    return target, source


def time_name(table: Table, wanted: str | None) -> str | None:
    """Name the column of times in the results.

    Parameters
    ----------
    table : Table
        The first that is read.
    wanted : str or None
        What the user has asked for; None for no times.

    Returns
    -------
    str or None
        The column's own name, if it has one that says so much and means nothing else in results.
    """
    if wanted is None:
        return None
    columns = table.columns
    name = wanted if columns.time is None else columns.names[columns.time]
    taken = name in {"row", "label", "novelty"} or name.startswith("component_")
    return "time" if taken or name.isdecimal() else name


def skipped_facts(tables: Sequence[Table]) -> dict[str, Any]:
    """Count the rows that were left out.

    Parameters
    ----------
    tables : sequence of Table

    Returns
    -------
    dict
        ``rows_skipped`` and ``first_skipped``, of what JSON knows.
    """
    first = next((table.first_skipped for table in tables if table.first_skipped), None)
    return {"rows_skipped": sum(table.n_skipped for table in tables), "first_skipped": first}


def tell_skipped(tables: Sequence[Table]) -> None:
    """Say on standard error how many rows were left out, if any were.

    Parameters
    ----------
    tables : sequence of Table
    """
    found = skipped_facts(tables)
    if found["rows_skipped"]:
        what = "row was" if found["rows_skipped"] == 1 else "rows were"
        message = f"{found['rows_skipped']:,} {what} skipped, the first: {found['first_skipped']}"
        print_warning(message)


def all_chunks(tables: Sequence[Table], n_rows: int, *, exact: bool = False) -> Iterator[tuple[Table, Chunk]]:
    """Read tables one after the other; positions count on.

    Parameters
    ----------
    tables : sequence of Table
    n_rows : int
        Most rows of a chunk.
    exact : bool, default=False
        Every chunk of a table but its last has so many.

    Yields
    ------
    table : Table
        Whose rows they are.
    chunk : Chunk
    """
    before = 0
    for table in tables:
        chunks = table.chunks(n_rows)
        for chunk in regroup(chunks, n_rows) if exact else chunks:
            yield table, chunk._replace(position=before + chunk.position)
        before += table.total or 0


def total_of(tables: Sequence[Table]) -> int | None:
    """Add up the sizes of tables, in the units of their positions.

    Parameters
    ----------
    tables : sequence of Table

    Returns
    -------
    int or None
        None where one does not know its own.
    """
    sizes = [table.total for table in tables]
    return None if None in sizes else sum(size for size in sizes if size is not None)


def _open(file: str, reading: dict[str, Any]) -> Table:
    if file != STDIN:
        return open_table(file, **reading)
    if sys.stdin is None:
        raise BadInput("-: standard input is closed; name a file, or redirect one")
    return open_table("standard input", stream=sys.stdin.buffer, **reading)
