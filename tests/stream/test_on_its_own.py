"""The method needs no model and no monitor."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

import streamkpca.stream

PAGE = Path(__file__).parents[2] / "docs" / "state.md"
REPORT = """
import sys
print([int(n_found), int(is_novel.sum() - n_found), [name for name in sys.modules if name.startswith("streamkpca.")]])
"""


@pytest.mark.slow
def test_a_detector_of_thirty_lines_loads_no_model_and_finds_what_is_novel():
    detector = re.findall(r"```python\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)[0]
    lines = [line for line in detector.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    assert len(lines) <= 30
    run = subprocess.run([sys.executable, "-c", detector + REPORT], capture_output=True, text=True, check=True)
    n_found, n_false, modules = ast.literal_eval(run.stdout.splitlines()[-1])
    assert n_found == 10
    # Ten rows in 9,990 are expected beyond the 0.999 quantile.
    assert n_false < 30
    packages = {name.split(".")[1] for name in modules}
    assert packages == {"_core", "_version", "components", "dictionary", "errors", "kernels", "rows", "stream"}


def test_its_names_are_found_and_listed():
    assert dir(streamkpca.stream) == streamkpca.stream.__all__
    for name in streamkpca.stream.__all__:
        assert getattr(streamkpca.stream, name).__module__.startswith("streamkpca.stream."), name
    with pytest.raises(AttributeError, match=r"^module 'streamkpca\.stream' has no attribute 'advanced'$"):
        streamkpca.stream.advanced  # noqa: B018
