"""The code of docs/many-machines.md runs as written; that of an engine where the engine is installed."""

import os
import re
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest

from streamkpca import Bank, StreamingKernelPCA

PAGE = Path(__file__).parents[2] / "docs" / "many-machines.md"
PARTS = np.array_split(np.random.default_rng(0).normal(size=(6000, 3)), 7)
COLUMNS = ["load", "heat", "flow"]

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas:FutureWarning"),
]


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def run(heading, **names):
    """Run the code under a heading, all blocks together."""
    exec(code_under(heading), names)
    return names


def code_under(heading):
    section = PAGE.read_text(encoding="utf-8").partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    code = "\n".join(re.findall(r"```python\n(.*?)```", section, re.DOTALL))
    assert code
    return code


def test_every_block_is_run_here():
    headings = set(re.findall(r"^## (.*)$", PAGE.read_text(encoding="utf-8"), re.MULTILINE))
    assert headings == {"Any processes", "Dask", "Spark", "Ray", "Beam", "A model for each key"}


def test_any_processes():
    model = run("Any processes", parts=PARTS)["model"]
    assert (model.n_samples_seen_, len(model.eigenvalues_)) == (6000, 10)


def test_dask():
    dd = pytest.importorskip("dask.dataframe", reason="needs the extra dask")
    pd = pytest.importorskip("pandas", reason="needs the extra dask")
    frame = dd.from_pandas(pd.DataFrame(np.vstack(PARTS), columns=COLUMNS), npartitions=3)
    names = run("Dask", frame=frame)
    assert (names["answers"].compute()["novelty"] >= 0.0).all()
    found = names["parts"].compute()
    assert len(found) == len(frame)
    assert ((found["low"] < found["expected"]) & (found["expected"] < found["high"])).all()
    counts = [StreamingKernelPCA.from_bytes(model).n_samples_seen_ for model in names["models"]]
    assert sum(counts) == 6000


class State:
    """The state of a key, as Spark passes it."""

    exists = False

    def update(self, values):
        self.exists, self.get = True, values


def test_models_by_key_score_rows_first_and_then_learn_them():
    """The function that Spark would call, without Spark."""
    pd = pytest.importorskip("pandas", reason="needs the extra spark")
    source = code_under("Spark")
    names = {"StreamingKernelPCA": StreamingKernelPCA, "pd": pd, "features": COLUMNS}
    exec(re.search(r"^template = .*?(?=\n\nstream = )", source, re.DOTALL | re.MULTILINE)[0], names)
    state, model = State(), names["template"].without_rows()
    for part in PARTS[:3]:
        table = pd.DataFrame(part, columns=COLUMNS).assign(pump="A", time=range(len(part)))
        mixed = table.sample(frac=1.0, random_state=0)
        (scores,) = names["score"](("A",), iter([mixed[:30], mixed[30:]]), state)
        known = model.novelty(table[COLUMNS]) if part is not PARTS[0] else np.full(len(part), np.nan)
        np.testing.assert_array_equal(scores["novelty"], known)
        assert scores["time"].tolist() == list(range(len(part)))
        model = StreamingKernelPCA.from_bytes(model.partial_fit(table[COLUMNS]).to_bytes())
        assert state.get[0] == model.to_bytes()


def test_spark(monkeypatch):
    sql = pytest.importorskip("pyspark.sql", reason="needs the extra spark")
    pd = pytest.importorskip("pandas", reason="needs the extra spark")
    if shutil.which("java") is None and "JAVA_HOME" not in os.environ:
        pytest.skip("Spark needs Java 17 or later")
    monkeypatch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    builder = (
        sql.SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.memory", "1g")
    )
    spark = builder.config("spark.driver.host", "127.0.0.1").config("spark.sql.shuffle.partitions", "2").getOrCreate()
    try:
        Path("readings").mkdir()
        table = pd.DataFrame(np.vstack(PARTS), columns=COLUMNS).assign(pump="A", time=range(6000))
        for start in (0, 2000, 4000):
            table[["pump", "time", *COLUMNS]][start : start + 2000].to_csv(f"readings/{start}.csv", index=False)
        names = {"spark": spark}
        # Java stays in the folder of this process's first session.
        exec(code_under("Spark").replace('"readings"', repr(str(Path("readings").absolute()))), names)
        assert names["model"].n_samples_seen_ == 6000
        scores = {row["time"]: row["novelty"] for row in spark.table("scores").collect()}
        assert sorted(scores) == list(range(6000))
        # The first batch, a file of 2,000 rows, has no scores.
        assert list(scores.values()).count(None) == 2000
    finally:
        spark.stop()


# Its own warnings, which differ from release to release.
@pytest.mark.filterwarnings("ignore")
def test_ray():
    ray = pytest.importorskip("ray", reason="needs the extra ray")
    pd = pytest.importorskip("pandas", reason="needs the extra ray")
    ray.init(num_cpus=2, include_dashboard=False, _node_ip_address="127.0.0.1", object_store_memory=2**27)
    try:
        names = run("Ray", dataset=ray.data.from_pandas([pd.DataFrame(part, columns=COLUMNS) for part in PARTS]))
        assert names["model"].n_samples_seen_ == names["scores"].count() == 6000
        assert names["models"].count() == 2
    finally:
        ray.shutdown()


# Its own warnings, which differ from release to release.
@pytest.mark.filterwarnings("ignore")
def test_beam():
    pytest.importorskip("apache_beam", reason="Beam is in no extra; install apache-beam to run this")
    run("Beam", first=PARTS[0], parts=PARTS)
    assert StreamingKernelPCA.load("model.npz").n_samples_seen_ == 6000


def test_a_model_for_each_key():
    names = run("A model for each key", keys=["pump", "fan"] * 3000, rows=np.vstack(PARTS))
    assert {key: len(novelty) for key, novelty in names["novelty"].items()} == {"pump": 500, "fan": 500}
    with Bank("models", names["template"].without_rows) as bank:
        assert bank.get("fan").n_samples_seen_ == 3000
