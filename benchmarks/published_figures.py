"""Does it give the figures of the papers that it is made after?

The scripts of `examples/`, run as they are, beside what the papers print.

* **Three clusters** [1]_: kernels with a weight, of 90; the paper's draw is not published, so the median of 100.
* **Pima** [1]_: the RMS error of reconstruction with 15 axes in the span of 40 of the 200 kernels, by the paper's axes
  and by the best ones there, beside all 200; and the errors of a linear support vector machine on 332 others.
* **USPS** [2]_: test errors of a linear support vector machine on components of degree 3, in percent, on rows drawn
  from the training set, and for linear components on the article's own rows.

.. [1] M. E. Tipping, "Sparse kernel principal component analysis", NIPS 13, 2001.
.. [2] B. Schoelkopf, A. Smola, K.-R. Mueller, "Nonlinear component analysis as a kernel eigenvalue problem", 1998.
"""

import contextlib
import io
import os
import re
import sys
import tempfile
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
from common import Figures, find_files, is_installed, make_table, run

EXAMPLES = Path(__file__).parents[1] / "examples"
# Fewer degrees and components than the example's, which takes a quarter of an hour.
USPS = {
    "whole": {"DEGREES": [3], "COMPONENTS": [64, 256, 1024], "ATOMS": 512},
    "quick": {"N_TRAIN": 1200, "DEGREES": [3], "COMPONENTS": [64, 256], "ATOMS": 256},
}
ARTICLE = {"AS_IN_THE_ARTICLE": True, "DEGREES": [1], "COMPONENTS": [256], "ATOMS": 256}


def run_example(name: str, *arguments: str, **constants: object) -> dict[str, Any]:
    """Run an example in a folder that is then removed, with other values of its constants; return its names."""
    text = (EXAMPLES / f"{name}.py").read_text(encoding="utf-8")
    for constant, value in constants.items():
        text = re.sub(rf"^{constant} = .*$", f"{constant} = {value!r}", text, flags=re.MULTILINE)
    names: dict[str, Any] = {"__name__": "__main__"}
    before = Path.cwd()
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()):
        os.chdir(folder)
        try:
            with mock.patch.object(sys, "argv", [name, *arguments]):
                exec(compile(text, name, "exec"), names)
        finally:
            os.chdir(before)
    return names


def measure(size: str, data: Path | None) -> Figures:
    """Run the examples whose data are there."""
    found: Figures = {}
    if not (is_installed("matplotlib") and is_installed("sklearn")):
        return found
    clusters = run_example("three_clusters")
    found["kernels"] = float(np.median(clusters["counts"]))
    for path in find_files(data, "pima", "Pima.tr.csv"):
        names = run_example("pima", str(path.parent.resolve()))
        found["pima"] = {
            axes: {"error": float(names["rms"][axes][14]), "wrong": int(names["wrong"][axes][14])}
            for axes in ("likelihood", "ritz", "full")
        }
    for path in find_files(data, "usps") if size in USPS else ():
        names = run_example("usps_classification", str(path.resolve()), **USPS[size])
        found["usps"] = {
            f"{model}, {q} components": error
            for (method, model, q, _), error in names["errors"].items()
            if method == "SVM"
        }
        if size == "whole":
            names = run_example("usps_classification", str(path.resolve()), **ARTICLE)
            found["article"] = {
                "ours": names["errors"]["SVM", "exact", 256, 1],
                "published": names["TABLE_1"][256][0],
            }
    return found


def describe(figures: Figures) -> str:
    """Return a line for each figure."""
    rows: list[list[object]] = [["three clusters: kernels of 90", "9", f"{figures['kernels']:.0f}"]]
    for axes, found in figures.get("pima", {}).items():
        title = {"likelihood": "40 kernels, the paper's axes", "ritz": "40 kernels, the best axes"}.get(axes, "all 200")
        rows.append([f"Pima, {title}: error, wrong of 332", "-", f"{found['error']:.4f}, {found['wrong']}"])
    rows += [
        [f"USPS, {name}, degree 3: % wrong", "", f"{error:.1f}"] for name, error in figures.get("usps", {}).items()
    ]
    if "article" in figures:
        article = figures["article"]
        rows.append(
            ["USPS as in the article, 256 linear: % wrong", f"{article['published']:.1f}", f"{article['ours']:.1f}"]
        )
    return make_table(["", "published", "here"], rows)


if __name__ == "__main__":
    run(measure, describe)
