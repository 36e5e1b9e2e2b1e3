"""The commands that manage models and the installation: info, merge, export, warmup, completion."""

import os
from pathlib import Path

import click

from streamkpca.cli.console import BadInput, one_line, print_facts, print_json
from streamkpca.cli.models import (
    check_writable,
    export_model,
    merge_models,
    read_fitted,
    read_model,
)
from streamkpca.cli.options import FILE, RESULTS, Command, json_option, option
from streamkpca.cli.reports import model_facts, parameter_facts, show_model
from streamkpca.estimators.warmup import cache_folder, warmup

_INSTALL = {
    "bash": 'eval "$(streamkpca completion bash)" in ~/.bashrc',
    "zsh": 'eval "$(streamkpca completion zsh)" in ~/.zshrc, after compinit',
    "fish": "streamkpca completion fish > ~/.config/fish/completions/streamkpca.fish",
}


@click.command(
    cls=Command,
    short_help="Show what a saved model has learned.",
    examples=[
        ("streamkpca info plant.npz", "What it has learned, and from which columns."),
        ("streamkpca info plant.npz --json | jq .rows", "For machines."),
    ],
    output="what the model has learned.",
)
@click.argument("model", metavar="MODEL", type=FILE)
@json_option
def info(model: str, as_json: bool) -> None:
    """Show what a saved MODEL has learned, and what was saved beside it.

    The file is not trusted: it is checked as a whole, and nothing in it is run or unpickled.
    """
    learner = read_model(model)
    is_fitted = learner.__sklearn_is_fitted__()
    if as_json:
        print_json(model_facts(learner) if is_fitted else {"rows": 0, "parameters": parameter_facts(learner)})
    elif is_fitted:
        show_model(learner)
    else:
        facts = parameter_facts(learner)
        print_facts("A model that has seen no rows yet", [(name, str(value)) for name, value in facts.items()])


@click.command(
    cls=Command,
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
def merge(models: tuple[str, ...], out: str, as_json: bool) -> None:
    """Merge saved MODELs that have learned different rows with one kernel, scale included."""
    check_writable(out, ())
    merged, extra = merge_models(models)
    with one_line(out):
        merged.save(out, extra or None)
    merged.extra_ = extra or None
    if as_json:
        print_json(model_facts(merged))
    else:
        show_model(merged)
        click.echo(f"Model: {out}")


@click.command(
    cls=Command,
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
    default="streamkpca",
    show_default=True,
    section=RESULTS,
    help="C: prefix of the functions' names.",
)
@option(
    "--quantile",
    type=float,
    section=RESULTS,
    help="C: add NAME_is_novel, true for rows more novel than this share of rows like those learned.",
)
@json_option
def export(model: str, out: str, double: bool, name: str, quantile: float | None, as_json: bool) -> None:
    """Write a saved MODEL as a graph for ONNX runtimes, or as a C99 file without heap for microcontrollers."""
    check_writable(out, [model], what="the export")
    export_model(read_fitted(model), out, double=double, name=name, quantile=quantile)
    if as_json:
        print_json({"written": out, "bytes": Path(out).stat().st_size})
    else:
        click.echo(f"Written: {out}")


@click.command(
    "warmup",
    cls=Command,
    short_help="Compile all loops now.",
    examples=[("NUMBA_CACHE_DIR=/opt/loops streamkpca warmup", "In an image: compile once, for every container.")],
    output="how many loops were compiled, and where they are kept.",
)
@json_option
def warm_up(as_json: bool) -> None:
    """Compile all loops now, so that no later process does: for container images and installers.

    Compiled loops are kept beside the package, or else in the user's cache; the environment variable
    NUMBA_CACHE_DIR names another folder. Later users of the package must be allowed to write there too.
    """
    wanted, folder = os.environ.get("NUMBA_CACHE_DIR"), cache_folder()
    remedy = "set NUMBA_CACHE_DIR to a folder that you may write to"
    if folder is None:
        raise BadInput(f"expected a folder for compiled loops but none can be written to; {remedy}")
    if wanted and Path(wanted).resolve() not in folder.resolve().parents:
        raise BadInput(f"NUMBA_CACHE_DIR={wanted}: expected a folder that can be written to; {remedy}")
    found = warmup()
    if found.unsaved:
        raise BadInput(f"{folder}: {found.unsaved} of {found.compiled} compiled loops could not be saved; make room")
    cached = found.ready - found.compiled
    if as_json:
        print_json({"compiled": found.compiled, "from_the_cache": cached, "cache": str(folder)})
    else:
        facts = [("compiled", str(found.compiled)), ("from the cache", str(cached))]
        print_facts("Loops, one for each combination of types", facts)
        click.echo(f"Cache: {folder}")


@click.command(
    cls=Command,
    short_help="Print the script that completes commands in a shell.",
    examples=[
        (_INSTALL["bash"], "Bash 4.4 or later: from the next shell on."),
        (_INSTALL["zsh"], "Zsh."),
        (_INSTALL["fish"], "Fish."),
    ],
    output="the script, which also tells how to install it.",
)
@click.argument("shell", metavar="bash|zsh|fish", type=click.Choice(list(_INSTALL)))
@json_option
def completion(shell: str, as_json: bool) -> None:
    """Print the script that lets a shell complete commands, options, their values, and files."""
    from click.shell_completion import get_completion_class

    root = click.get_current_context().find_root()
    kind = get_completion_class(shell)
    assert kind is not None
    # Not `source()`: that first looks for a bash, which need not be the one that will read this.
    maker = kind(root.command, {}, "streamkpca", "_STREAMKPCA_COMPLETE")
    script = f"# To install: {_INSTALL[shell]}\n{maker.source_template % maker.source_vars()}"
    if as_json:
        print_json({"shell": shell, "install": _INSTALL[shell], "script": script})
    else:
        click.echo(script)
