"""A bank of models: each is that of its key's rows alone, whatever is in memory, and files are whole."""

import os
from enum import Enum, IntEnum, StrEnum

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamkpca import CheckpointError, ModelBank, StreamingKernelPCA
from streamkpca.kernels import RBF, Custom

pytestmark = pytest.mark.slow

RNG = np.random.default_rng(0)
ROWS = RNG.normal(size=(400, 2))
SMALL = {"n_components": 2, "max_atoms": 6, "block_size": 16, "reservoir_size": 20}


def template(**changes):
    return StreamingKernelPCA(**(SMALL | changes)).partial_fit(ROWS)


def bank_in(folder, model=None, **options):
    folder.mkdir(exist_ok=True, parents=True)
    return ModelBank(template() if model is None else model, folder=folder / "bank", **options)


@settings(max_examples=8)
@given(st.integers(1, 6), st.lists(st.integers(0, 4), min_size=1, max_size=60), st.data())
def test_a_model_is_that_of_the_rows_of_its_key(tmp_path_factory, max_models, keys, data):
    folder = tmp_path_factory.mktemp("bank")
    rows = np.random.default_rng(len(keys)).normal(size=(len(keys), 2))
    cuts = data.draw(st.lists(st.integers(0, len(keys)), max_size=4).map(sorted))
    with bank_in(folder, max_models=max_models) as bank:
        for positions in np.split(np.arange(len(keys)), cuts):
            if len(positions):
                bank.learn([keys[i] for i in positions], rows[positions])
            assert bank.n_in_memory_ <= max_models
        assert sorted(bank) == sorted(set(keys))
        assert len(bank) == len(set(keys))
        scores = bank.score(keys, rows)
        for key in set(keys):
            mine = np.array(keys) == key
            alone = template().without_rows().partial_fit(rows[mine])
            assert bank.model(key).to_bytes() == alone.to_bytes()
            np.testing.assert_array_equal(scores[mine], alone.novelty(rows[mine]))


def test_models_go_on_in_the_next_bank_of_the_folder(tmp_path):
    with bank_in(tmp_path, max_models=2) as bank:
        for key in "abcabc":
            bank.learn([key], ROWS[:1])
        assert (bank.n_written_, bank.n_read_) == (4, 3)
    assert sum(len(files) for _, _, files in os.walk(bank.folder)) == 5  # three models, the template, the lock
    with bank_in(tmp_path) as bank:
        assert ("a" in bank, "d" in bank, 7 in bank) == (True, False, False)
        assert bank.learn(["a"], ROWS[6:7]).model("a").n_samples_seen_ == 3
        assert bank.save().n_written_ == 1
        assert bank.save().n_written_ == 1
        assert len(bank) == 3
        bank.remove("b")
        assert sorted(bank) == ["a", "c"]
        assert bank.learn(["b"], ROWS[:1]).model("b").n_samples_seen_ == 1


def test_asking_writes_nothing(tmp_path):
    with bank_in(tmp_path, max_models=1) as bank:
        bank.learn(list("ab"), ROWS[:2])
        n_written = bank.save().n_written_
        bank.score(list("abab"), ROWS[:4])
        bank.model("a").partial_fit(ROWS)
        assert bank.n_written_ == n_written
        assert bank.model("a").n_samples_seen_ == 1


def test_new_models_begin_with_the_atoms_of_the_template(tmp_path):
    known = template()
    with bank_in(tmp_path, known) as bank:
        model = bank.learn(["new"], ROWS[:1]).model("new")
        np.testing.assert_array_equal(model.atoms_, known.refit().atoms_)
        assert (model.n_samples_seen_, model.kernel_) == (1, known.kernel_)
    with ModelBank(StreamingKernelPCA(**SMALL), folder=tmp_path / "cold") as bank:
        bank.learn(["small"] * 50 + ["large"] * 50, np.r_[ROWS[:50], 100.0 * ROWS[50:100]])
        assert bank.model("small").kernel_.gamma > 100.0 * bank.model("large").kernel_.gamma


@pytest.mark.parametrize(
    "key", ["../../x", "/etc/passwd", "", "a/b\\c\0\n", "é" * 900, 0, -5, 10**40, "7", 7, "\udc80"]
)
def test_keys_are_never_paths(tmp_path, key):
    with bank_in(tmp_path, max_models=1) as bank:
        bank.learn([key, "other"], ROWS[:2])
    paths = [path for path in (tmp_path / "bank").rglob("*.npz") if path.name != "template.npz"]
    assert len(paths) == 2
    assert all(len(path.name) == 36 and path.parent.parent == tmp_path / "bank" for path in paths)
    with bank_in(tmp_path) as bank:
        assert set(bank) == {key, "other"}
        assert bank.model(key).n_samples_seen_ == 1


class Machine(StrEnum):
    PUMP = "pump"


class Site(str, Enum):  # noqa: UP042 - its text is not its value
    PUMP = "pump"


class Number(IntEnum):
    SEVEN = 7


def test_keys_are_exactly_strings_or_integers(tmp_path):
    with bank_in(tmp_path, max_models=1) as bank:
        bank.learn([7, "7", 7, np.int64(7), Number.SEVEN], ROWS[:5])
        bank.learn(np.array(["7"]), ROWS[:1])
        assert (bank.model(7).n_samples_seen_, bank.model("7").n_samples_seen_) == (4, 2)
        bank.learn([Machine.PUMP, "pump", Site.PUMP, np.str_("pump")], ROWS[:4])
        bank.learn(["other", Machine.PUMP], ROWS[:2])
        assert Machine.PUMP in bank
        assert bank.model(Machine.PUMP).n_samples_seen_ == 5
    with bank_in(tmp_path) as bank:
        assert {(type(key), key) for key in bank} == {(int, 7), (str, "7"), (str, "pump"), (str, "other")}
        bank.remove(Site.PUMP)
        assert "pump" not in bank


@pytest.mark.parametrize("keys", ["ab", b"ab", None, 7])
def test_one_key_for_many_rows_is_refused(tmp_path, keys):
    with bank_in(tmp_path) as bank:
        for act in (bank.learn, bank.update, bank.score):
            with pytest.raises(TypeError, match=f"expected a sequence of keys, one for each row, but got {keys!r}; p"):
                act(keys, ROWS[:2])
        assert len(bank) == 0


def test_refused_first_rows_leave_no_key(tmp_path):
    with ModelBank(StreamingKernelPCA(1), folder=tmp_path / "bank") as bank:
        bank.learn(["a"], ROWS[:1])
        with pytest.raises(ValueError, match="features"):
            bank.learn(["a", "b"], np.ones((2, 3)))
        assert list(bank) == ["a"]
    with bank_in(tmp_path / "again", StreamingKernelPCA(1, dtype="float32")) as bank:
        with pytest.raises(ValueError, match="float32"):
            bank.learn(["x"], [[1e200]])
        assert ("x" in bank, len(bank), list(bank), bank.n_in_memory_) == (False, 0, [], 0)


def test_files_that_killed_writers_left_are_removed(tmp_path):
    bank_in(tmp_path).learn(["a"], ROWS[:1]).close()
    (path,) = (tmp_path / "bank").glob("*/*.npz")
    left = [folder / f".{path.name}.0123456789abcdef.tmp" for folder in (path.parent, tmp_path / "bank")]
    for half in left:
        half.write_bytes(b"PK")
    with bank_in(tmp_path) as bank:
        assert not any(half.exists() for half in left)
        assert bank.model("a").n_samples_seen_ == 1


def test_a_call_reads_each_model_once(tmp_path):
    keys = [*range(6)] * 5
    rows = ROWS[: len(keys)]
    with bank_in(tmp_path, max_models=2) as bank:
        bank.learn(keys, rows)
        for call in (bank.learn, bank.score, bank.update):
            before = bank.n_read_
            # Keys 4 and 5 are in memory, or others: as many as it holds.
            call(keys, rows)
            assert bank.n_read_ == before + 4


def test_rows_are_scored_by_what_their_key_had_learned_before(tmp_path):
    rows = ROWS[:9].copy()
    rows[7, 0] = np.nan
    with bank_in(tmp_path, template(on_bad_rows="skip"), max_models=1) as bank, bank_in(tmp_path / "2") as other:
        bank.learn(["a"] * 3, rows[:3])
        other.learn(["a"] * 3, rows[:3])
        expected = np.full(6, np.nan)
        expected[[0, 2]] = other.score(["a", "a"], rows[[3, 5]])
        np.testing.assert_array_equal(bank.update(["a", "new", "a", "b", "a", "new"], rows[3:]), expected)
        assert [bank.model(key).n_samples_seen_ for key in ("a", "new", "b")] == [6, 2, 1]
        assert bank.update([], ROWS[:0]).shape == (0,)


def test_one_writer_a_folder(tmp_path):
    with bank_in(tmp_path):
        with pytest.raises(BlockingIOError, match=r"ModelBank: .*bank is used by another bank; close that one first"):
            bank_in(tmp_path)
    bank = bank_in(tmp_path)
    bank.close()
    bank.close()
    with pytest.raises(ValueError, match="the bank is closed; open another one of its folder"):
        bank.learn(["a"], ROWS[:1])


def test_a_file_that_cannot_be_written_loses_no_model(tmp_path, monkeypatch):
    bank = bank_in(tmp_path, max_models=1)
    bank.learn(["a"], ROWS[:1])

    def full(*arguments):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(StreamingKernelPCA, "save", full)
        with pytest.raises(OSError, match="No space left"):
            bank.learn(["b"], ROWS[1:2])
        with pytest.raises(OSError, match="No space left"):
            bank.close()
    assert bank.model("a").n_samples_seen_ == 1
    bank.close()
    with bank_in(tmp_path) as bank:
        assert bank.model("a").n_samples_seen_ == 1


def test_rows_are_checked_before_any_is_learned(tmp_path):
    with bank_in(tmp_path) as bank:
        for keys, rows, error, message in (
            (["a", "b"], ROWS[:3], ValueError, r"learn expected one key for each of 3 rows but got 2"),
            (["a", 1.5], ROWS[:2], TypeError, r"learn expected keys that are strings or integers .* but got 1\.5"),
            (["a", True], ROWS[:2], TypeError, "but got True"),
            (["a", None], ROWS[:2], TypeError, "but got None"),
            (["a", "x" * 1001], ROWS[:2], TypeError, "at most 1000 characters"),
            (["a", "b"], [[1.0, 2.0], [np.nan, 1.0]], ValueError, "NaN"),
            (["a", "b"], np.ones((2, 3)), ValueError, "X has 3 features, but ModelBank is expecting 2"),
        ):
            with pytest.raises(error, match=message):
                bank.learn(keys, rows)
        with pytest.raises(ValueError, match="sample_weight"):
            bank.learn(["a"], ROWS[:1], sample_weight=[-1.0])
        with pytest.raises(ValueError, match=r"score expected keys that have models but got 'a'; let it learn rows"):
            bank.score(["a"], ROWS[:1])
        with pytest.raises(ValueError, match=r"model expected keys that have models but got 3"):
            bank.model(3)
        with pytest.raises(TypeError, match="strings or integers"):
            bank.learn(np.array([0], dtype="datetime64[ns]"), ROWS[:1])
        with pytest.raises(TypeError, match="strings or integers"):
            bank.learn([np.timedelta64(3, "ns")], ROWS[:1])
        assert True not in bank
        assert len(bank) == bank.n_in_memory_ == 0
        assert bank.learn([], np.empty((0, 2))) is bank
        assert bank.score([], np.empty((0, 2))).shape == (0,)


def test_rows_with_gaps_are_taken_as_the_template_takes_them(tmp_path):
    keys, rows = np.repeat(["a", "b"], 50), ROWS[:100].copy()
    rows[::7, 0] = rows[3] = np.nan
    n_bad = {"skip": {"a": 9, "b": 7}, "marginal": {"a": 1, "b": 0}}
    for on_missing in ("skip", "marginal"):
        begun = template(on_missing=on_missing)
        with bank_in(tmp_path / on_missing, begun, max_models=1) as bank:
            bank.learn(keys, rows)
            for key in ("a", "b"):
                alone = begun.without_rows().partial_fit(rows[keys == key])
                assert bank.model(key).to_bytes() == alone.to_bytes()
                assert alone.n_rows_rejected_ == n_bad[on_missing][key]
            if on_missing == "marginal":
                np.testing.assert_array_equal(bank.score(keys, rows)[keys == "b"], alone.novelty(rows[keys == "b"]))
            else:
                with pytest.raises(ValueError, match=r"ModelBank\.score: X contains NaN"):
                    bank.score(keys, rows)


def test_other_templates_and_damaged_folders_are_refused(tmp_path):
    bank_in(tmp_path).learn(["a"], ROWS[:1]).close()
    with pytest.raises(
        ValueError, match=r"folder of models with max_atoms=6, but the template has max_atoms=7; choose"
    ):
        bank_in(tmp_path, template(max_atoms=7))
    with pytest.raises(ValueError, match=r"folder of models with kernel=RBF.*but the template has kernel=RBF"):
        bank_in(tmp_path, template(kernel=RBF(0.123)))
    with pytest.raises(TypeError, match="expected a StreamingKernelPCA as the template but got str"):
        ModelBank("rbf", folder=tmp_path / "bank")
    with pytest.raises(ValueError, match="max_models"):
        bank_in(tmp_path, max_models=0)
    with pytest.raises(FileNotFoundError):
        ModelBank(template(), folder=tmp_path / "no" / "bank")
    (path,) = (tmp_path / "bank").glob("*/*.npz")
    with bank_in(tmp_path) as bank:
        StreamingKernelPCA.load(path).save(path, {"key": "b"})
        with pytest.raises(CheckpointError, match=r"ModelBank: .*\.npz is not the model of 'a'; restore it, or remove"):
            bank.model("a")
        path.write_bytes(b"junk")
        with pytest.raises(CheckpointError, match="not a checkpoint"):
            bank.score(["a"], ROWS[:1])
        with pytest.raises(CheckpointError):
            list(bank)
        bank.remove("a")
    (tmp_path / "bank" / "template.npz").write_bytes(b"junk")
    with pytest.raises(CheckpointError):
        bank_in(tmp_path)


def test_kernels_with_functions_of_the_caller_come_from_the_template(tmp_path):
    known = template(kernel=Custom(lambda A, B: A @ B.T))
    with bank_in(tmp_path, known, max_models=1) as bank:
        bank.learn(["a", "b", "a"], ROWS[:3])
    with bank_in(tmp_path, known) as bank:
        assert bank.model("a").n_samples_seen_ == 2
    with pytest.raises(ValueError, match=r"expected a kernel that files can hold, or one whose scale is settled, but"):
        bank_in(tmp_path / "cold", StreamingKernelPCA(1, kernel=known.kernel + RBF("median")))
