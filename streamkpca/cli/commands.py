"""The commands as users see them: arguments, options and help. Each names the function that does its work."""

import re

import click

from streamkpca.cli.completion import INSTALL
from streamkpca.cli.options import (
    FILE,
    INPUT,
    MODEL,
    RESULTS,
    FilePath,
    SaveInterval,
    Share,
    WholeNumber,
    command,
    follow_option,
    format_option,
    json_option,
    model_option,
    model_options,
    monitor_options,
    option,
    save_option,
    shown,
    table_options,
)

_SECONDS = {"s": 1.0, "m": 60.0, "h": 3600.0}
# A save takes some hundredths of a second; and no timer of the system counts for ever.
_SHORTEST, _LONGEST = 0.1, 1e9


def _interval(context: click.Context, parameter: click.Parameter, value: str | None) -> SaveInterval:
    if value is None:
        return SaveInterval()
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([smh]?)", value.strip())
    number = min(float(found[1]), _LONGEST) if found else 0.0
    if not found or number <= 0.0 or (not found[2] and number != int(number)):
        raise click.BadParameter(
            f"{shown(value)} is neither a number of rows (5000) nor a time (30s, 5m, 1h).", context, parameter
        )
    if not found[2]:
        return SaveInterval(rows=int(number))
    seconds = number * _SECONDS[found[2]]
    if seconds < _SHORTEST:
        raise click.BadParameter(f"{value!r} is too short; save at most every {_SHORTEST:g}s.", context, parameter)
    return SaveInterval(seconds=seconds)


@command(
    does="learn:demo",
    short_help="Learn a simulated plant, and find its faults.",
    examples=[
        ("streamkpca demo", "A picture and a table of 200,000 rows in ./streamkpca-demo."),
        ("streamkpca demo --rows 20000 --seed 7 --json", "Another plant, shorter, for machines."),
    ],
    output="what was learned, and how well faults were found.",
    opening="simulating {rows:,} rows of a plant with 24 sensors; the first run also compiles loops, about ten seconds",
    progress="what is simulated, and progress, on terminals as a bar and elsewhere as a line every five seconds",
)
@option("--rows", default=200_000, show_default=True, type=WholeNumber(1), help="Rows to simulate.")
@option("--seed", default=0, show_default=True, type=WholeNumber(0), help="Another seed, another plant.")
@option(
    "--out",
    default="streamkpca-demo",
    show_default=True,
    type=FilePath(file_okay=False),
    metavar="DIR",
    help="Folder for projections and picture.",
)
@json_option
def demo() -> None:
    """Simulate a plant, learn it as a stream, and measure how well novelty finds its faults.

    The plant has 24 sensors, one row every ten minutes, a slow drift and labelled faults. Every row is scored before it
    is learned. None of this is real data.
    """


@command(
    does="learn:fit",
    short_help="Learn the rows of files or of a pipe.",
    examples=[
        ("streamkpca fit readings.csv --drop time --model plant.npz", "Learn a file, and save the model."),
        ("collect | streamkpca fit - --model plant.npz --resume", "Continue with rows from a pipe."),
        (
            "streamkpca fit log.csv --follow --model plant.npz --resume --time when",
            "Follow a log; a kill does no harm.",
        ),
        (
            "streamkpca fit wide.parquet --n-active 40 --dtype float32 --model plant.npz",
            "Few kernels, half the memory.",
        ),
        ("streamkpca fit new.csv --half-life 50000 --save out.csv", "Forget slowly; project all rows."),
    ],
    output="what was learned, or the results with --save -.",
)
@click.argument("files", nargs=-1, required=True, metavar="FILE...", type=FILE)
@option("--model", type=FILE, metavar="FILE", section=MODEL, help="Save the model here.")
@option("--resume", is_flag=True, section=MODEL, help="Continue the model in --model, if that file exists.")
@option(
    "--save-every",
    "interval",
    callback=_interval,
    metavar="ROWS|TIME",
    section=MODEL,
    help="Also save the model while it learns, by rows (5000) or by time (30s, 5m, 1h).  "
    "[default: only at the end; 1m with --follow]",
)
@option(
    "--from-start",
    is_flag=True,
    section=MODEL,
    help="With --resume: learn files from their beginning, even if the model has learned from them before.",
)
@follow_option
@table_options
@model_options
@save_option
@format_option
@json_option
def fit() -> None:
    """Learn the rows of FILE... (CSV, JSON lines, Parquet, Arrow, npy, npz; - for standard input).

    Files are read in chunks, never whole. The size of the chunks does not change what is learned.

    --model saves what was learned, also after Ctrl-C or SIGTERM; with --resume a later run continues there. Each save
    replaces the whole file at once, so other processes may read it meanwhile. A new file can be read by its owner only;
    one that is replaced keeps its rights. The file also records up to where each FILE was learned: a FILE that has
    grown is learned from there on, each row once, even after a kill. Rows of standard input are learned as they come.

    The file keeps the names of the columns too: later commands choose the same columns by name, in any order.

    --save writes row, novelty and projections of every row. Files are read a second time for that, and the final
    model projects all rows. Standard input cannot be read again: its rows are projected as soon as they are learned,
    by the model of that moment, in full chunks of --chunk-rows.
    """


@command(
    does="query:score",
    short_help="Measure how novel rows are.",
    examples=[
        ("streamkpca score today.csv --model plant.npz --time when", "Events, and the most novel rows."),
        (
            "streamkpca score new.csv --train old.csv --lags 3 --smoothing 0.3",
            "Rows in time order: fewer alarms.",
        ),
        (
            "streamkpca score new.csv --train old.csv --labels fault",
            "Learn first; measure how well novelty finds faults.",
        ),
        ("streamkpca score today.csv --model plant.npz --save scores.csv", "A line for every row."),
        ("streamkpca score log.csv --model plant.npz --follow --time when --json", "Alarms and events, as they come."),
        ("streamkpca score mon.csv --model m.npz --save-model m.npz", "Go on tomorrow with what is normal today."),
    ],
    output="what was found, or the results with --save -.",
)
@click.argument("file", metavar="FILE", type=FILE)
@option("--train", type=FILE, metavar="FILE", section=MODEL, help="Rows to learn first.")
@option("--model", type=FILE, metavar="FILE", section=MODEL, help="A saved model instead.")
@option("--train-array", metavar="NAME", section=INPUT, help="Array of an npz --train file.  [default: as --array]")
@option(
    "--labels",
    metavar="COLUMN",
    section=INPUT,
    help="Column (or npz array) that is not 0 in the anomalous rows of FILE.",
)
@option(
    "--save-model",
    type=FILE,
    metavar="FILE",
    section=MODEL,
    help="Save the model here at the end, with its thresholds and events: score --model FILE goes on with them.",
)
@option(
    "--top",
    default=10,
    show_default=True,
    metavar="N",
    type=WholeNumber(0),
    section=RESULTS,
    help="Events and most novel rows to show.",
)
@follow_option
@table_options
@model_options
@monitor_options
@save_option
@format_option
@json_option
def score() -> None:
    """Learn --train, or read a saved --model, then measure how novel each row of FILE is (- for standard input).

    The novelty of a row is the squared distance, in feature space, to the span of the atoms, on a scale that goes on
    growing far away. Rows above a threshold are alarms; the share --quantile of rows like those learned stays below it.
    Alarms with less than ten rows between them are one event, which is shown with the columns that add most to its
    peak. Of FILE, only rows that are no alarm are learned (--learn); when alarms last, the change is told, and learned.

    With --follow, alarms are printed as they come: row, time (with --time) and novelty; and events as they begin and
    end. The model is read again whenever its file is replaced, as by fit --follow, unless --save writes its
    projections.

    The model finds its columns by name if FILE has names.

    With --labels, the area under the ROC curve and the average precision are reported; for that the scores of all rows
    are kept, 9 bytes a row.
    """


@command(
    does="query:transform",
    short_help="Project rows.",
    examples=[
        ("streamkpca transform today.csv --model plant.npz | head", "CSV on standard output."),
        ("streamkpca transform day-*.npz --model plant.npz --save all.parquet", "Many files, one file of results."),
        ("streamkpca transform log.jsonl --model plant.npz --follow --json", "A JSON object for every new row."),
    ],
    output="the results, or with --save the path of their file.",
)
@click.argument("files", nargs=-1, required=True, metavar="FILE...", type=FILE)
@model_option
@follow_option
@table_options
@save_option
@format_option
@json_option
def transform() -> None:
    """Project the rows of FILE... with a saved model: write row, novelty and projections of each.

    The model finds its columns by name if a file has names.
    """


@command(
    does="query:impute",
    short_help="Complete rows with gaps.",
    examples=[
        ("streamkpca impute gaps.csv --model plant.npz --save whole.parquet", "A number in each gap."),
        ("streamkpca impute gaps.jsonl --model plant.npz --time when | head", "CSV on standard output."),
    ],
    output="the rows, or with --save the path of their file.",
)
@click.argument("files", nargs=-1, required=True, metavar="FILE...", type=FILE)
@model_option
@follow_option
@table_options
@save_option
@format_option
@json_option
def impute() -> None:
    """Complete the rows of FILE... with a saved model: write row and its columns, with a number in each gap.

    Gaps are empty cells, NaN and null. Numbers that a row has stay as they are; the others are those that make it least
    novel to the model. Rows without any number are left out, and counted. Only the columns of the model are written,
    and those of --time.
    """


@command(
    does="manage:info",
    short_help="Show what a saved model has learned.",
    examples=[
        ("streamkpca info plant.npz", "What it has learned, and from which columns."),
        ("streamkpca info plant.npz --json | jq .rows", "For machines."),
    ],
    output="what the model has learned.",
)
@click.argument("model", metavar="MODEL", type=FILE)
@json_option
def info() -> None:
    """Show what a saved MODEL has learned, and what was saved beside it.

    The file is not trusted: it is checked as a whole, and nothing in it is run or unpickled.
    """


@command(
    does="manage:merge",
    short_help="Make one model of several.",
    examples=[
        ("streamkpca merge east.npz west.npz --out both.npz", "Two halves of a stream."),
        (
            "streamkpca fit part.csv --kernel 'RBF(gamma=0.3)' --model part.npz",
            "Give all parts one kernel, scale included.",
        ),
    ],
    output="what the merged model has learned, and the path of its file.",
)
@click.argument("models", nargs=-1, required=True, metavar="MODEL...", type=FILE)
@option("--out", required=True, type=FILE, metavar="FILE", section=RESULTS, help="Save the merged model here.")
@json_option
def merge() -> None:
    """Merge saved MODELs that have learned different rows with one kernel, scale included."""


@command(
    does="manage:export",
    short_help="Write a model for ONNX runtimes or in C.",
    examples=[
        ("streamkpca export plant.npz plant.onnx", "For ONNX runtimes, in single precision."),
        ("streamkpca export plant.npz plant.c --quantile 0.99", "For microcontrollers, with streamkpca_is_novel()."),
    ],
    output="the path of the written file.",
)
@click.argument("model", metavar="MODEL", type=FILE)
@click.argument("out", metavar="OUT.onnx|OUT.c", type=FILE)
@option("--double", is_flag=True, section=RESULTS, help="Write numbers in double precision.  [default: single]")
@option(
    "--name",
    metavar="PREFIX",
    section=RESULTS,
    help="C: prefix of the functions' names.  [default: streamkpca]",
)
@option(
    "--quantile",
    type=Share(with_one=False),
    section=RESULTS,
    help="C: add NAME_is_novel, true for rows more novel than this share of rows like those learned.",
)
@json_option
def export() -> None:
    """Write a saved MODEL as a graph for ONNX runtimes, or as a C99 file without heap for microcontrollers."""


@command(
    "warmup",
    does="manage:warm_up",
    short_help="Compile all loops now.",
    examples=[("NUMBA_CACHE_DIR=/opt/loops streamkpca warmup", "In an image: compile once, for every container.")],
    output="how many loops were compiled, and where they are kept.",
)
@json_option
def warm_up() -> None:
    """Compile all loops now, so that no later process does: for container images and installers.

    Compiled loops are kept beside the package, or else in the user's cache; the environment variable
    NUMBA_CACHE_DIR names another folder. Later users of the package must be allowed to write there too.
    """


@command(
    does="completion:completion",
    short_help="Print the script that completes commands in a shell.",
    examples=[
        (INSTALL["bash"], "Bash 4.4 or later: from the next shell on."),
        (INSTALL["zsh"], "Zsh."),
        (INSTALL["fish"], "Fish."),
    ],
    output="the script, which also tells how to install it.",
)
@click.argument("shell", metavar="bash|zsh|fish", type=click.Choice(list(INSTALL)))
@json_option
def completion() -> None:
    """Print the script that lets a shell complete commands, options, their values, and files."""
