"""The script `.ci/extras` knows all extras and judges them rightly. It takes minutes, so no test runs it whole."""

import importlib.util
import sys
from importlib.machinery import SourceFileLoader
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / ".ci" / "extras"


@pytest.fixture(scope="module")
def script():
    loader = SourceFileLoader("extras", str(SCRIPT))
    spec = importlib.util.spec_from_loader("extras", loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


def test_every_extra_is_tried(script):
    tried = {extra for feature in script.FEATURES.values() for extra in feature.extras.split()}
    assert tried | script.TRIED_BY_RUN | {"all"} == set(script.EXTRAS)


def test_all_is_what_users_need(script):
    # Spark and Ray are those of the cluster, and Spark wants an old pandas.
    assert script.closure("all") == set(script.EXTRAS) - {"bench", "ray", "spark", "test"}


@pytest.mark.parametrize(
    ("code", "has", "found"),
    [
        ("pass", True, None),
        ("import sys; sys.exit('broken')", True, "fails: broken"),
        ("pass", False, "works without all of none_such"),
        ("import none_such", False, "is refused without the name of an extra that it lacks, onnx: "),
        ("raise ImportError('pip install \"streamkpca[plots,onnx]\"')", False, None),
        ("raise ImportError('pip install \"streamkpca[plots]\"')", False, "is refused without the name"),
    ],
)
def test_features_are_judged(script, tmp_path, code, has, found):
    feature = script.Feature("onnx", "none_such", code)
    said = script.complaint("polars", feature, has, script.run(Path(sys.executable), tmp_path, code))
    assert said is None if found is None else said.startswith(found)
