"""The work of the commands that manage models and the installation: info, merge, fleet, export, warmup."""

import math
import os
from pathlib import Path

import click

from streamkpca import StreamingKernelPCA
from streamkpca import merge as merge_models
from streamkpca._core.files import SHARED, replace_file
from streamkpca.cli.console import print_facts, print_json, printable, write_value
from streamkpca.cli.events import list_events
from streamkpca.cli.models import (
    NOTES,
    Saved,
    check_target,
    is_among,
    model_facts,
    n_learned,
    read_saved,
    show_model,
    with_notes,
)
from streamkpca.cli.options import MONITOR_PARAMETERS, refuse_given
from streamkpca.compilation import cache_folder, warmup
from streamkpca.errors import text_of
from streamkpca.kernels import Kernel
from streamkpca.monitoring.report import Facts

# No device has room for more.
_LARGEST_STATE = 2**26
# A machine is shown that is as odd as one in this number of healthy fleets.
_LEAST_RARITY = 200.0


def info(model: str, as_json: bool) -> None:
    """Show what a saved model has learned, and what was saved beside it."""
    saved = read_saved(model, fitted=False)
    learner, monitor, beside, columns = saved.model, saved.monitor, saved.extra, saved.reading.columns
    facts: Facts = model_facts(learner, columns, saved.n_columns) if n_learned(learner) else {"rows": 0}
    facts["monitor"] = monitor and {name: getattr(monitor, name) for name in MONITOR_PARAMETERS}
    facts["learned_from"] = list(saved.places)
    is_named = isinstance(beside, dict)
    facts["extra"] = {name: value for name, value in beside.items() if name != NOTES} if is_named else beside
    parameters = learner.get_params(deep=False)
    parameters = {name: repr(one) if isinstance(one, Kernel) else one for name, one in parameters.items()}
    if as_json:
        print_json(facts | {"parameters": parameters})
        return
    show_model(facts)
    print_facts("Parameters", parameters)
    if monitor and (events := list_events(monitor)):
        click.echo("\n  ".join(["\nWhat the report lists, and events accepted or confirmed", *events]))


def merge(model: str, files: tuple[str, ...], out: str) -> None:
    """Merge a saved model with others, and with states of devices that began with it."""
    check_target(out, (model, *files))
    saved = _read_first(model, files)
    merged = merge_models(saved.model, *(_part(path, saved) for path in files))
    merged.save(out, with_notes({}, saved.reading, {}) or None)
    show_model(model_facts(merged, saved.reading.columns))
    click.echo(f"Model: {out}")


def fleet(model: str, files: tuple[str, ...], as_json: bool) -> None:
    """Show the odd ones among machines that began with a saved model."""
    from streamkpca.fleet import find_odd_machines

    saved = _read_first(model, files)
    machines = find_odd_machines({path: _part(path, saved) for path in files})
    columns = saved.reading.columns or range(saved.model.n_features_in_)
    found = [
        {**machine._asdict(), "features": [str(columns[j] if isinstance(j, int) else j) for j in machine.features]}
        for machine in machines
    ]
    if as_json:
        print_json({"machines": found})
        return
    shown = [machine for machine in found if machine["rarity"] >= _LEAST_RARITY]
    few = write_value([machine["name"] for machine in found if math.isnan(machine["rarity"])])
    click.echo(f"{len(found)} machines, {len(shown)} odd" + (f"; too few rows to tell: {few}" if few else ""))
    for machine in shown:
        rarity = "over 1,000,000" if machine["rarity"] > 1e6 else f"{machine['rarity']:,.0f}"
        where = write_value(machine["features"]) or "what the atoms do not explain"
        click.echo(f"  {printable(machine['name'])}: once in {rarity} healthy fleets; in {where}")


def _read_first(model: str, files: tuple[str, ...]) -> Saved:
    """Read the model that devices began with, after a look at the files."""
    every = (model, *files)
    if twice := [path for i, path in enumerate(every) if is_among(path, every[:i])]:
        raise click.UsageError(f"{twice[0]}: is given twice, so its rows would count twice")
    if _state_of_device(model) is not None:
        raise click.UsageError(f"{model}: is the state of a device; name the model that it began with first")
    return read_saved(model, alone=True)


def _part(path: str, begun: Saved) -> StreamingKernelPCA:
    """Read a saved model of the same columns, or the state of a device that began with the model `begun`."""
    from streamkpca.export import from_device

    if (state := _state_of_device(path)) is not None:
        try:
            return from_device(state, begun.model)
        except ValueError as error:
            raise ValueError(f"{path}: {text_of(error)}") from None
    saved = read_saved(path, alone=True)
    expected, got = begun.reading.columns, saved.reading.columns
    if expected and got and expected != got:
        raise ValueError(
            f"{path}: expected a model of the columns {', '.join(expected)} but got {', '.join(got)}; "
            "learn the same ones in the same order (--columns)"
        )
    return saved.model


def _state_of_device(path: str) -> bytes | None:
    """Read the state of a device; None if the file is something else."""
    from streamkpca.export.device_state import MAGIC

    with open(path, "rb") as file:
        head = file.read(4)
        return head + file.read(_LARGEST_STATE) if int.from_bytes(head, "little") == MAGIC else None


def export(model: str, out: str, double: bool, learns: bool, name: str, return_period: float) -> None:
    """Write a saved model as a graph for ONNX runtimes, or as a C99 file for microcontrollers."""
    from streamkpca.export import to_c, to_c_learner, to_onnx

    check_target(out, [model])
    ending, learner = Path(out).suffix.lower(), read_saved(model, alone=True).model
    if ending == ".c":
        if learns:
            refuse_given({"double"}, f"{out}: a device that learns has single precision")
            contents = to_c_learner(learner, name=name, return_period=return_period).encode()
        else:
            refuse_given({"return_period"}, f"{out}: only a device that learns has an alarm level")
            contents = to_c(learner, name=name, dtype="double" if double else "float").encode()
    elif ending == ".onnx":
        refuse_given({"name", "learns", "return_period"}, f"{out}: these concern C files")
        contents = to_onnx(learner, dtype="float64" if double else "float32").SerializeToString(deterministic=True)
    else:
        raise click.UsageError(f"{out}: expected a name that ends in .onnx or .c")
    with replace_file(out, mode=SHARED) as file:
        file.write(contents)
    click.echo(f"Written: {out}")


def warm_up() -> None:
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
    click.echo(f"Compiled loops: {found.compiled}, from the cache: {found.ready - found.compiled}\nCache: {folder}")
