"""The work of the commands that manage models and the installation: info, merge, export, warmup."""

import os
from pathlib import Path

import click

from streamkpca.cli.console import BadInput, one_line, print_facts, print_json
from streamkpca.cli.models import DEFAULT_NAME, check_writable, export_model, merge_models, read_fitted, read_model
from streamkpca.cli.reports import model_facts, parameter_facts, show_model
from streamkpca.models.warmup import cache_folder, warmup


def info(model: str, as_json: bool) -> None:
    """Show what a saved MODEL has learned, and what was saved beside it."""
    learner = read_model(model)
    is_fitted = learner.__sklearn_is_fitted__()
    if as_json:
        print_json(model_facts(learner) if is_fitted else {"rows": 0, "parameters": parameter_facts(learner)})
    elif is_fitted:
        show_model(learner)
    else:
        facts = parameter_facts(learner)
        print_facts("A model that has seen no rows yet", [(name, str(value)) for name, value in facts.items()])


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


def export(model: str, out: str, double: bool, name: str | None, quantile: float | None, as_json: bool) -> None:
    """Write a saved MODEL as a graph for ONNX runtimes, or as a C99 file without heap for microcontrollers."""
    check_writable(out, [model], what="the export")
    n_bytes = export_model(read_fitted(model), out, double=double, name=name or DEFAULT_NAME, quantile=quantile)
    if as_json:
        print_json({"written": out, "bytes": n_bytes})
    else:
        click.echo(f"Written: {out}")


def warm_up(as_json: bool) -> None:
    """Compile all loops now, so that no later process does: for container images and installers."""
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
