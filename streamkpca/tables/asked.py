"""How a table is to be read: what the user asks for, and what is known of its columns."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple


class Reading(NamedTuple):
    """How the columns of a file are read, by names; what is known of it beside a saved model.

    columns: the features. time, time_format: see `Asked`. differences: features that are counters. gaps: numbers
    of a feature that stand for gaps. wide: the columns of the tag and of the value, where the features are tags.
    quality: the columns that tell whether values of others are good.
    """

    columns: tuple[str, ...] = ()
    time: tuple[str, ...] = ()
    time_format: str | None = None
    differences: tuple[str, ...] = ()
    gaps: Mapping[str, tuple[float, ...]] = {}
    wide: tuple[str, str] | None = None
    quality: Mapping[str, tuple[str, ...]] = {}


class Asked(NamedTuple):
    """How a table is to be read.

    header : whether text has names above its rows; None: its contents tell.
    skip, names_line, names : lines at the beginning of text that are passed over, the line that holds the names of the
        columns, from 1, and these names.
    encoding : of text; None: its contents tell.
    delimiter, decimal : of CSV; None: its contents tell.
    columns, drop : names of columns to read, in this order, and to leave out; without names they are "0", "1", ...
    time, labels : columns handed out beside the rows, and never features: numbers or dates, and numbers. Several
        columns of times are joined by spaces.
    time_format : of `strptime`, "number", or "s", "ms", "us" or "ns" for numbers since 1970; None: the cells tell.
    differences : columns of counters, whose differences are read; None: those of `known`, or what a look finds.
    gaps : numbers that stand for gaps; None: the first rows tell.
    quality : columns that tell whether the value before them is good; None: the first rows tell.
    wide : column of tags, if each row holds the value of one; the table then has a column for each tag.
    by : column of machines, and the one whose rows are read.
    known : how an earlier file of these columns was read.
    on_bad_rows : "raise" refuses a row with another number of cells, or without a time; "skip" leaves it out.
    missing : a row with gaps (cells without a number) is refused ("raise"), left out ("skip"), or keeps NaN
        ("marginal"); rows without any number are left out then, and counted.
    follow : whether to wait for more at the end of text; a file that was replaced or emptied is read anew.
    start : `Batch.position` of an earlier reading, to go on after it. If the file is another one now, that is an
        error, or with `follow` a note, and reading from the beginning.
    looks : whether to look at the first rows for what is not given: the time, tags, machines, counters, columns
        without numbers; rows that are not in order of time are put in order. `Table.look` tells what was found.
    """

    header: bool | None = None
    skip: int = 0
    names_line: int | None = None
    names: Sequence[str] = ()
    encoding: str | None = None
    delimiter: str | None = None
    decimal: str | None = None
    columns: Sequence[str] = ()
    drop: Sequence[str] = ()
    time: Sequence[str] = ()
    time_format: str | None = None
    differences: Sequence[str] | None = None
    gaps: Sequence[float] | None = None
    quality: Sequence[str] | None = None
    wide: str | None = None
    by: tuple[str, str] | None = None
    labels: str | None = None
    known: Reading = Reading()
    on_bad_rows: str = "raise"
    missing: str = "raise"
    follow: bool = False
    start: Mapping[str, Any] | None = None
    looks: bool = False
