"""The work of the commands that manage models and the installation: info, export, warmup."""

import os
from pathlib import Path

import click

from streamkpca._core.files import SHARED, write_durably
from streamkpca.cli.console import print_facts, print_json, print_result
from streamkpca.cli.models import check_target, read_saved
from streamkpca.cli.options import refuse_given
from streamkpca.cli.reports import saved_facts, show_model
from streamkpca.models.warmup import cache_folder, warmup


def info(model: str, as_json: bool) -> None:
    """Show what a saved model has learned, and what was saved beside it."""
    facts = saved_facts(read_saved(model, fitted=False))
    if as_json:
        print_json(facts)
        return
    parameters = facts.pop("parameters")
    show_model(facts)
    print_facts("Parameters", parameters)


def export(model: str, out: str, double: bool, name: str, quantile: float | None, as_json: bool) -> None:
    """Write a saved model as a graph for ONNX runtimes, or as a C99 file for microcontrollers."""
    from streamkpca.export import to_c, to_onnx

    check_target(out, [model])
    ending, learner = Path(out).suffix.lower(), read_saved(model).model
    if ending == ".c":
        threshold = None if quantile is None else learner.novelty_threshold(quantile)
        contents = to_c(learner, name=name, dtype="double" if double else "float", threshold=threshold).encode()
    elif ending == ".onnx":
        refuse_given({"name", "quantile"}, f"{out}: these concern C files")
        contents = to_onnx(learner, dtype="float64" if double else "float32").SerializeToString(deterministic=True)
    else:
        raise click.UsageError(f"{out}: expected a name that ends in .onnx or .c")
    write_durably(out, lambda file: file.write(contents), mode=SHARED)
    print_result({"written": out, "bytes": len(contents)}, f"Written: {out}", as_json=as_json)


def warm_up(as_json: bool) -> None:
    """Compile all loops now, so that no later process does: for container images and installers."""
    wanted, folder = os.environ.get("NUMBA_CACHE_DIR"), cache_folder()
    remedy = "set NUMBA_CACHE_DIR to a folder that you may write to"
    if folder is None:
        raise ValueError(f"expected a folder for compiled loops but none can be written to; {remedy}")
    if wanted and Path(wanted).resolve() not in folder.resolve().parents:
        raise ValueError(f"NUMBA_CACHE_DIR={wanted}: expected a folder that can be written to; {remedy}")
    found = warmup()
    if found.unsaved:
        raise ValueError(f"{folder}: {found.unsaved} of {found.compiled} compiled loops could not be saved; make room")
    cached = found.ready - found.compiled
    facts = {"compiled": found.compiled, "from_the_cache": cached, "cache": str(folder)}
    lines = f"Compiled loops: {found.compiled}, from the cache: {cached}", f"Cache: {folder}"
    print_result(facts, *lines, as_json=as_json)
