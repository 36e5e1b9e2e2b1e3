"""A bank: what a key has is that of its rows alone, whatever is in memory, and generations are whole or not at all."""

import json
import signal
import subprocess
import sys
from enum import Enum, IntEnum, StrEnum

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import scipy.sparse
from hypothesis import given, settings
from hypothesis import strategies as st

from streamkpca import Bank, StreamingKernelPCA
from streamkpca.errors import CheckpointError
from streamkpca.monitoring import Monitor

pytestmark = pytest.mark.slow

RNG = np.random.default_rng(0)
ROWS = RNG.normal(size=(400, 2))
TEMPLATE = StreamingKernelPCA(2, max_atoms=6, block_size=16, reservoir_size=20).partial_fit(ROWS)


def bank_in(folder, make=TEMPLATE.without_rows, **options):
    return Bank(folder / "bank", make, **options)


def count(bank, key):
    return bank.get(key).n_samples_seen_


@settings(max_examples=8)
@given(st.integers(1, 6), st.lists(st.integers(0, 4), min_size=1, max_size=60), st.data())
def test_a_model_is_that_of_the_rows_of_its_key(tmp_path_factory, max_in_memory, keys, data):
    rows = np.random.default_rng(len(keys)).normal(size=(len(keys), 2))
    cuts = data.draw(st.lists(st.integers(0, len(keys)), max_size=4).map(sorted))
    with bank_in(tmp_path_factory.mktemp("bank"), max_in_memory=max_in_memory) as bank:
        for positions in np.split(np.arange(len(keys)), cuts):
            known = {key: bank.get(key) for key in bank}
            found = bank.update([keys[i] for i in positions], rows[positions])
            assert list(found) == list(dict.fromkeys(keys[i] for i in positions))
            for key, novelty in found.items():
                own = rows[[i for i in positions if keys[i] == key]]
                expected = known[key].novelty(own) if key in known else np.full(len(own), np.nan)
                np.testing.assert_array_equal(novelty, expected)
            if data.draw(st.booleans()):
                bank.save()
        assert set(bank) == set(keys)
        assert len(bank) == len(set(keys))
        for key in set(keys):
            alone = TEMPLATE.without_rows().partial_fit(rows[np.array(keys) == key])
            assert bank.get(key).to_bytes() == alone.to_bytes()


def test_a_bank_of_monitors_tells_records_and_events_by_key(tmp_path):
    rng = np.random.default_rng(1)

    def rows(n):
        angle = rng.uniform(0.0, 2.0 * np.pi, size=(n, 1)) - [0.0, 1.0, 2.0]
        return np.sin(angle) + 0.05 * rng.normal(size=angle.shape)

    keys = np.repeat(["fan", "pump", "valve"], 1500)
    alone, stream = Monitor(), {key: rows(1500) for key in ("fan", "pump", "valve")}
    stream["pump"][1400:1440] = 3.0
    with bank_in(tmp_path, Monitor, max_in_memory=1) as bank:
        table = pd.DataFrame(np.concatenate([*stream.values()]), columns=["a", "b", "c"])
        for part in np.split(np.random.default_rng(2).permutation(4500), 3):
            part.sort()
            records = bank.update(keys[part], table.iloc[part])
            expected = alone.update(table.iloc[part[keys[part] == "pump"]])
            np.testing.assert_array_equal(records["pump"].is_alarm, expected.is_alarm)
        assert bank.n_read_ > 0
        assert len(alone.events_) > 0
        events = bank.events()
        assert events["pump"] == alone.events_
        assert {key for key in bank if bank.get(key).events_} == set(events)
    with bank_in(tmp_path, Monitor) as bank:
        assert bank.events()["pump"] == alone.events_
        monitor = bank.get("pump")
        monitor.update(rows(10))
        assert bank.get("pump").n_rows_ == 1500
        bank.put("pump", monitor)
        assert bank.get("pump").n_rows_ == 1510


def test_a_save_without_an_offset_has_none_and_closing_saves_then(tmp_path):
    with bank_in(tmp_path) as bank:
        bank.update(["a"], ROWS[:1])
        bank.save({"offset": 6}).save()
    with bank_in(tmp_path) as bank:
        assert bank.extra_ is None
        bank.update(["b"], ROWS[:1])
    with bank_in(tmp_path) as bank:
        assert sorted(bank) == ["a", "b"]
        assert bank._run("SELECT count(*) FROM states").fetchone() == (2,)
    assert (tmp_path / "bank").stat().st_mode & 0o777 == 0o700


@settings(max_examples=8)
@given(st.lists(st.tuples(st.integers(0, 5), st.sampled_from(["learn", "save", "reopen", "remove"])), max_size=30))
def test_generations_are_whole_whatever_happens_between(tmp_path_factory, acts):
    """A bank that is opened again without a save is as it was at the last one, rows that were displaced included."""
    folder, saved, now = tmp_path_factory.mktemp("bank"), {}, {}
    bank = bank_in(folder, max_in_memory=2)
    for number, (key, act) in enumerate(acts):
        if act == "learn":
            bank.update([key], ROWS[number : number + 1])
            now[key] = now.get(key, 0) + 1
        elif act == "save":
            bank.save(number)
            saved = dict(now)
        elif act == "remove":
            bank.remove(key)
            now.pop(key, None)
        else:
            bank.extra_ = "kept"
            bank.close()
            bank, now = bank_in(folder, max_in_memory=2), dict(saved)
        assert {key: count(bank, key) for key in bank} == now
    bank.close()


KILLED = """
import sys, numpy as np
from streamkpca import Bank, StreamingKernelPCA
rows = np.random.default_rng(0).normal(size=(400, 2))
template = StreamingKernelPCA(2, max_atoms=6, block_size=16, reservoir_size=20).partial_fit(rows)
with Bank(sys.argv[1], template.without_rows, max_in_memory=3) as bank:
    start = bank.extra_ or 0
    for offset in range(start, 400, 4):
        bank.update([i % 20 for i in range(offset, offset + 4)], rows[offset : offset + 4])
        print(offset, flush=True)
        if offset % 40 == 36:
            bank.save(offset + 4)
"""


@pytest.mark.faults
def test_a_killed_process_loses_no_row_and_counts_none_twice(tmp_path):
    for n_lines in (3, 25, 40, 1000):
        process = subprocess.Popen(
            [sys.executable, "-c", KILLED, str(tmp_path / "bank")], stdout=subprocess.PIPE, text=True
        )
        for number, _ in enumerate(process.stdout):
            if number == n_lines:
                process.send_signal(signal.SIGKILL)
        process.wait()
        process.stdout.close()
        with bank_in(tmp_path) as bank:
            done = bank.extra_ or 0
            for key in bank:
                mine = np.arange(key, done, 20)
                assert bank.get(key).to_bytes() == TEMPLATE.without_rows().partial_fit(ROWS[mine]).to_bytes()
            assert len(bank) == min(done, 20)
            bank.extra_ = bank.extra_ or "nothing to save"
    assert done == 400


def test_a_full_disk_loses_nothing(tmp_path):
    bank = bank_in(tmp_path, max_in_memory=1)
    bank.update(["a"], ROWS[:1])
    bank.save(1)
    pages = bank._run("PRAGMA page_count").fetchone()[0]
    bank._run(f"PRAGMA max_page_count = {pages}")
    keys = [key for key in "bcdefgh" for _ in "12"]
    with pytest.raises(OSError, match=r"bank\.sqlite3: database or disk is full; .*make room on its disk.*nothing in"):
        bank.update(keys, ROWS[: len(keys)])
    with pytest.raises(OSError, match="full"):
        bank.save(2)
    learned = set(bank)
    assert {"a", "b"} < learned
    assert bank.extra_ == 1
    bank._run("PRAGMA max_page_count = 1000000")
    assert {key: count(bank, key) for key in bank} == {key: 1 + (key > "a") for key in learned}
    bank.save(3).close()
    with bank_in(tmp_path) as bank:
        assert (bank.extra_, set(bank)) == (3, learned)


@pytest.mark.parametrize(
    "kind",
    [pa.table, pa.record_batch, lambda columns: pa.table(columns).to_reader(), pl.DataFrame, pd.DataFrame, "coo"],
)
def test_rows_of_any_kind_go_to_their_keys(tmp_path, kind):
    columns = {"a": ROWS[:6, 0], "b": ROWS[:6, 1]}
    with bank_in(tmp_path) as bank:
        bank.update(list("xyzxyz"), scipy.sparse.coo_array(ROWS[:6, :2]) if kind == "coo" else kind(columns))
        for key, rows in zip("xyz", (ROWS[[0, 3], :2], ROWS[[1, 4], :2], ROWS[[2, 5], :2]), strict=True):
            np.testing.assert_array_equal(bank.get(key).state_.pending.rows, rows)


def test_a_young_template_settles_its_kernel_once(tmp_path):
    template = StreamingKernelPCA(random_state=0).partial_fit(ROWS[:50])
    assert template.without_rows().kernel is template.without_rows().kernel
    before = template.without_rows().kernel
    template.partial_fit(100.0 * ROWS[:50])
    assert template.without_rows().kernel != before
    assert template.without_rows().kernel == StreamingKernelPCA.from_bytes(template.to_bytes()).without_rows().kernel


def test_one_bank_a_folder(tmp_path):
    with bank_in(tmp_path) as bank:
        bank.update(["a"], ROWS[:1])
        with pytest.raises(OSError, match=r"Bank: .*bank\.sqlite3: database is locked; open one bank of a folder"):
            bank_in(tmp_path)
        code = f"from streamkpca import Bank, StreamingKernelPCA as S; Bank({str(tmp_path / 'bank')!r}, S)"
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
        assert "database is locked" in done.stderr
    bank.close()
    uses = {
        "put": lambda: bank.put("a", StreamingKernelPCA()),
        "update": lambda: bank.update(["a"], ROWS[:1]),
        "get": lambda: bank.get("a"),
        "events": bank.events,
        "remove": lambda: bank.remove("a"),
        "save": bank.save,
        "list": lambda: list(bank),
    }
    for use in uses.values():
        with pytest.raises(OSError, match=r"Bank: .*bank was closed; open a bank of this folder again"):
            use()
    with bank_in(tmp_path) as bank:
        assert count(bank, "a") == 1


def test_a_damaged_file_is_refused(tmp_path):
    with bank_in(tmp_path) as bank:
        bank.update(["a"], ROWS[:1])
        bank.save()
        bank._run("UPDATE states SET state = ?", (b"junk",))
        bank._values.clear()
        with pytest.raises(CheckpointError, match="not a checkpoint") as caught:
            bank.update(["a"], ROWS[:1])
        assert caught.value.__notes__ == ["Bank.update: at 'a'; 0 of 1 keys have taken their rows"]
    (tmp_path / "bank" / "bank.sqlite3").write_bytes(b"junk" * 1000)
    with pytest.raises(OSError, match=r"file is not a database; .*restore its file"):
        bank_in(tmp_path)


class Machine(StrEnum):
    PUMP = "pump"


class Site(str, Enum):  # noqa: UP042 - its text is not its value
    PUMP = "pump"


class Number(IntEnum):
    SEVEN = 7


def test_keys_are_exactly_strings_or_integers(tmp_path):
    strange = ["../../x", "", "a/b\\c\0\n", "é" * 900, 0, -5, 10**40, "\udc80", "'; DROP TABLE states; --"]
    with bank_in(tmp_path, max_in_memory=1) as bank:
        bank.update([7, "7", 7, np.int64(7), Number.SEVEN], ROWS[:5])
        bank.update(np.array(["7"]), ROWS[:1])
        assert (count(bank, 7), count(bank, "7")) == (4, 2)
        bank.update([Machine.PUMP, "pump", Site.PUMP, np.str_("pump")], ROWS[:4])
        bank.update(strange, ROWS[: len(strange)])
        assert count(bank, Machine.PUMP) == 4
    with bank_in(tmp_path) as bank:
        assert {(type(key), key) for key in bank} == {(type(key), key) for key in [7, "7", "pump", *strange]}
        bank.remove(Site.PUMP)
        assert "pump" not in bank
        bank.remove("never seen")
        for key in (1.5, True, None, "x" * 1001, np.timedelta64(3, "ns")):
            for act in (bank.get, bank.remove, lambda key: key in bank, lambda key: bank.update([key], ROWS[:1])):
                with pytest.raises(TypeError, match="expected keys that are strings or integers of at most 1000 char"):
                    act(key)


def test_bad_input_is_refused_and_leaves_no_key(tmp_path):
    with bank_in(tmp_path) as bank:
        for keys in ("ab", b"ab", None, ["a"], 7):
            with pytest.raises(TypeError, match="expected a list of 2 keys, one for each row, but got"):
                bank.update(keys, ROWS[:2])
        with pytest.raises(ValueError, match="NaN") as caught:
            bank.update(["a", "b"], [[1.0, 2.0], [np.nan, 1.0]])
        assert caught.value.__notes__[-1] == "Bank.update: at 'b'; 1 of 2 keys have taken their rows"
        assert list(bank) == ["a"]
        with pytest.raises(KeyError, match="expected a key that has something but got 'c'; let it take rows first"):
            bank.get("c")
        with pytest.raises(TypeError, match="put: expected a StreamingKernelPCA but got Monitor"):
            bank.put("a", Monitor())
        with pytest.raises(TypeError, match="not JSON serializable"):
            bank.save(object())
        with pytest.raises(ValueError, match="JSON"):
            bank.save(float("nan"))
        assert json.loads("null") is bank.extra_
        assert bank.update([], ROWS[:0]) == {}
    with pytest.raises(TypeError, match="expected make to return what has to_bytes and from_bytes, not str"):
        Bank(tmp_path / "x", str)
    with pytest.raises(ValueError, match="max_in_memory"):
        bank_in(tmp_path, max_in_memory=0)
    with pytest.raises(FileNotFoundError):
        bank_in(tmp_path / "no")
