"""Scripts of benchmarks/ and examples/, run as a person would run them."""

import contextlib
import os
import re
import subprocess
import sys
import warnings
from pathlib import Path
from unittest import mock

import streamkpca


def names_after(folder, script, *arguments, **constants):
    """Run an example from a folder in this process, with warnings as errors, and return its names.

    Constants are given other values, to be quick; each is assigned in one line of the script.
    """
    text = script.read_text(encoding="utf-8")
    for name, value in constants.items():
        text, n = re.subn(rf"^{name} = .*$", f"{name} = {value!r}", text, flags=re.MULTILINE)
        assert n == 1, f"{script.name} assigns {name} in {n} lines"
    names = {"__name__": "__main__"}
    with contextlib.ExitStack() as stack:
        stack.enter_context(contextlib.chdir(folder))
        stack.enter_context(mock.patch.object(sys, "argv", [str(script), *arguments]))
        stack.enter_context(warnings.catch_warnings())
        warnings.simplefilter("error")
        exec(compile(text, script, "exec"), names)
    return names


def check_picture(path):
    """Check that a picture is large enough and shows something, on a white page."""
    from matplotlib.image import imread

    pixels = imread(path)
    assert min(pixels.shape[:2]) > 400
    assert 0.02 < (pixels[..., :3].min(axis=2) < 0.9).mean() < 0.6


def run_apart(folder, *arguments):
    """Run Python from a folder in a separate process, with warnings as errors."""
    environment = os.environ | {"PYTHONPATH": str(Path(streamkpca.__file__).parents[1])}
    return subprocess.run(
        [sys.executable, "-W", "error", *arguments],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        # Against a script that hangs; cold starts compile for 50 s of processor time, which a busy machine makes 200.
        timeout=600,
        check=False,
    )
