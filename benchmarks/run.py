"""Measure everything again, and write the pages that show it: `python benchmarks/run.py [NAME ...]`.

Each benchmark is a script with a function `measure(size, data)`, which returns its figures, and one
`describe(figures)`, which returns the Markdown that the page shows. This script runs them one after the other, each in
a process of its own with one BLAS thread, gathers what they found in `benchmarks/figures.json` with machine, versions
and commit, and writes `docs/benchmarks.md` and the section "Measured" of README.md from that file. A benchmark that is
not named, or that fails, keeps the figures that the file has; the file is written after each.
"""

import argparse
import importlib
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from common import Figures, describe_machine, make_table, show

from streamkpca import __version__

HERE = Path(__file__).parent
ROOT = HERE.parent
FIGURES, PAGE, README = HERE / "figures.json", ROOT / "docs" / "benchmarks.md", ROOT / "README.md"
# In the order of the page: public boards, the stream, what is around it.
NAMES = (
    "real_streams",
    "drifting_streams",
    "moving_streams",
    "numenta_benchmark",
    "outliers_in_tables",
    "changes_of_distribution",
    "odd_machines",
    "kernel_matrices",
    "published_figures",
    "young_streams",
    "settled_streams",
    "single_rows",
    "growth",
    "endurance",
    "shards",
    "learning_on_a_device",
    "cold_start",
)
INTRODUCTION = """# Benchmarks

Public data sets and peers first, then what the library costs. All figures are those of `benchmarks/figures.json`, which
one command writes, with this page:

```sh
python benchmarks/run.py --data FOLDER          # everything; with names, those alone; with --quick, less of each
```

[How they are measured](../benchmarks/README.md) says where the public data come from. Settings are the defaults
unless said. Peers run in the same process on the same rows."""
_MEASURED = re.compile(r"(<!-- measured -->\n).*(<!-- measured end -->)", re.DOTALL)
_IN_SHORT = re.compile(r"(<!-- in short -->\n).*(<!-- in short end -->)", re.DOTALL)


def measure(name: str, size: str, data: Path | None) -> Figures:
    """Run one benchmark in a process of its own, and return its figures."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "figures.json"
        command = [sys.executable, str(HERE / f"{name}.py"), "--size", size, "--json", str(file)]
        paths = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
        variables = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "PYTHONPATH": paths}
        subprocess.run(
            [*command, *(["--data", str(data)] if data else [])], check=True, cwd=folder, env=os.environ | variables
        )
        found: Figures = json.loads(file.read_text(), parse_float=lambda digits: float(f"{float(digits):.6g}"))
    return found


def read_commit() -> str:
    """Return the commit of the tree, marked if the package or a script differs from it."""

    def ask(*arguments: str) -> str:
        done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
        return done.stdout.strip()

    commit = ask("rev-parse", "--short=10", "HEAD") or "unknown"
    is_changed = bool(ask("status", "--porcelain", "--", "streamkpca", "benchmarks/*.py"))
    return f"{commit}, changed" if is_changed else commit


def read_question(name: str) -> tuple[str, str]:
    """Return the question that a benchmark answers, and how it does so."""
    text = importlib.import_module(name).__doc__ or ""
    question, _, rest = text.partition("\n\n")
    # Footnotes of Markdown for those of the docstring.
    return question, re.sub(r"^\.\. \[(\d+)\] ", r"\\[\1] ", rest.strip().replace("]_", "]"), flags=re.MULTILINE)


def write_page(figures: Figures) -> str:
    """Return the page of benchmarks."""
    machine = figures["machine"]
    versions = ", ".join(f"{name} {version}" for name, version in machine["versions"].items())
    parts = [
        INTRODUCTION,
        f"Version {figures['version']}, on {machine['cores']} cores of an {machine['processor']}, one BLAS thread; "
        f"{versions}. Other work ran on the machine: seconds are processor time unless said.",
    ]
    found = figures["benchmarks"]
    for name in (name for name in NAMES if name in found):
        question, method = read_question(name)
        shown = importlib.import_module(name).describe(found[name]["figures"])
        parts += [f"## {question}", method, shown]
    lines = [
        [f"`{name}`", *(found[name][key] for key in ("size", "commit")), show(found[name]["seconds"])]
        for name in NAMES
        if name in found
    ]
    parts += ["## Runs", make_table(["benchmark", "size", "commit", "seconds of the clock"], lines)]
    return "\n\n".join(parts) + "\n"


def write_summary(figures: Figures) -> str:
    """Return README's table: one line for each question, of those that were measured."""
    found = {name: entry["figures"] for name, entry in figures["benchmarks"].items()}
    lines: list[list[str]] = []

    def add(question: str, ours: Any, others: str) -> None:
        lines.append([question, str(ours), others])

    if entry := found.get("real_streams"):
        macro = entry["macro"]
        peers = ("5th neighbour", "Mahalanobis", "isolation forest")
        others = ", ".join(f"{name} {macro[name]:.2f}" for name in peers if name in macro)
        ours = ", ".join(f"{name} {macro[name]:.2f}" for name in ("comes", "declared", "frozen", "model"))
        add(f"faults in {len(entry['families'])} families of real streams: average precision", ours, others)
    if entry := found.get("drifting_streams"):
        means = entry["means"]
        others = ", ".join(f"{name} {value:.3f}" for name, value in means.items() if name != "Monitor")
        add(f"anomalies in {entry['n_streams']} drifting streams: ROC area", f"{means['Monitor']:.3f}", others)
    if entry := found.get("numenta_benchmark"):
        for title, key in (("score", "scores"), ("score, each event told once", "once")):
            scores = {name: of["standard"] for name, of in entry[key].items()}
            others = ", ".join(f"{name} {value:.1f}" for name, value in scores.items() if name != "Monitor")
            add(f"Numenta benchmark, {entry['n_files']} files: {title}", f"{scores['Monitor']:.1f}", others)
    if entry := found.get("outliers_in_tables"):
        for kind, name in (("contaminated", "OutlierDetector"), ("clean", "StreamingKernelPCA")):
            means = entry[kind]
            peers = [peer for peer in means if peer not in ("OutlierDetector", "StreamingKernelPCA")]
            others = ", ".join(f"{peer} {means[peer]:.1f}" for peer in sorted(peers, key=means.get, reverse=True)[:3])
            title = f"outliers in {entry['n_tables']} tables of ADBench, {kind}: ROC area, %"
            add(title, f"{means[name]:.1f}", others)
    if entry := found.get("kernel_matrices"):
        wins, n = entry["wins"], entry["n_cells"]
        ours = f"{wins['one pass']} in one pass, {wins['one pass, moved']} with atoms that move"
        title = f"{n} kernel matrices: how many are approximated at least as well as by RPCholesky"
        add(title, ours, "RPCholesky sees all rows")
    for line in found.get("young_streams", {}).get("equal", {}).get("generated", ()):
        if line["pair"] is not None and line["atoms"] in (96, 192):
            title = f"{line['n']:,} rows learned, until {line['left']:.4f} of the energy is left out"
            add(title, f"{line['seconds']:.2g} s", f"Nystroem + IncrementalPCA {line['pair']:.2g} s")
    if entry := found.get("single_rows"):
        of = entry["microseconds"]
        ours = ", ".join(f"{name} {of[key]['median']:.1f} us" for name, key in _CALLS.items())
        add("a single row", ours, f"KernelPCA of 4,000 rows: {of['KernelPCA transform']['median']:.0f} us")
    return make_table(["question", "streamkpca", "others"], lines) + "\n"


_CALLS = {"project": "transform", "score": "novelty", "learn": "partial_fit"}


def write_sentence(figures: Figures) -> str:
    """Return what README's first screen says of how good it is; nothing unless all of it was measured."""
    found = {name: entry["figures"] for name, entry in figures["benchmarks"].items()}
    if not {"real_streams", "drifting_streams"} <= found.keys():
        return ""
    real, drifting = found["real_streams"], found["drifting_streams"]
    macro, speed = real["macro"], drifting["rows_per_second"]
    peers = [macro[name] for name in ("5th neighbour", "Mahalanobis", "isolation forest") if name in macro]
    beside = f" (the best of {len(peers)} textbook methods: {max(peers):.2f})" if peers else ""
    return (
        f"With its defaults, its average precision on the faults of {len(real['families'])} families of real streams "
        f"is {macro['frozen']:.2f} if it learns declared healthy rows alone{beside}, and {macro['comes']:.2f} if it is "
        f"told nothing and goes on learning. Then an event begins in {macro['found, comes']:.0%} of the faults, and "
        f"{macro['false events, comes']:.1f} begin in 1,000 healthy rows. In {drifting['n_streams']} drifting streams "
        f"its area under the ROC curve is {drifting['means']['Monitor']:.3f}. It scores and learns about "
        f"{round(speed, -3):,.0f} rows a second. [More figures](#measured)\n"
    )


def put_summary(readme: str, summary: str, sentence: str) -> str:
    """Return README's text with the table and the sentence between their marks."""
    for mark, text in ((_MEASURED, summary), (_IN_SHORT, sentence)):
        readme = mark.sub(lambda found, text=text: f"{found[1]}{text}{found[2]}", readme)
    return readme


def main() -> None:
    """Measure, and write the pages."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"some of {', '.join(NAMES)}")
    parser.add_argument("--quick", action="store_true", help="less of each: ten minutes on two cores")
    parser.add_argument("--data", type=Path, metavar="FOLDER", help="public data; without it their boards are left out")
    parser.add_argument("--pages", action="store_true", help="measure nothing; write the pages from the file")
    arguments = parser.parse_args()
    for name in arguments.names:
        if name not in NAMES:
            parser.error(f"expected some of {', '.join(NAMES)} but got {name}")
    figures: Figures = json.loads(FIGURES.read_text()) if FIGURES.exists() else {"benchmarks": {}}
    failed = []
    if not arguments.pages:
        commit, size = read_commit(), "quick" if arguments.quick else "whole"
        for name in arguments.names or NAMES:
            print(f"\n{name}", flush=True)
            start = time.perf_counter()
            try:
                found = measure(name, size, arguments.data.resolve() if arguments.data else None)
            except subprocess.CalledProcessError:
                failed.append(name)
                continue
            if found:
                entry = {"size": size, "commit": commit, "seconds": time.perf_counter() - start, "figures": found}
                figures |= {"version": __version__, "machine": describe_machine()}
                figures["benchmarks"][name] = entry
                FIGURES.write_text(json.dumps(figures, indent=1) + "\n")
    PAGE.write_text(write_page(figures), encoding="utf-8")
    readme = put_summary(README.read_text(encoding="utf-8"), write_summary(figures), write_sentence(figures))
    README.write_text(readme, encoding="utf-8")
    if failed:
        parser.exit(1, f"failed, and kept with earlier figures: {', '.join(failed)}\n")


if __name__ == "__main__":
    main()
