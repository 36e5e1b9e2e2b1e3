"""A growing file gives every row once, as soon as its line is complete, across rotation and truncation."""

import itertools
import json
import os
import tempfile
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamkpca.cli.tables import TableError, open_table
from streamkpca.cli.tables import source as sources


class Stop(BaseException):
    """Raised where the reader would wait for ever."""


class Writer:
    """Write a file step by step; each step happens while the reader sleeps, after it has read all there is."""

    def __init__(self, path, steps, seen=lambda: None):
        self.path, self._steps, self._seen = path, iter(steps), seen
        self._writing, self._generation = None, 0

    def sleep(self, seconds):
        assert seconds > 0
        self._seen()
        for step in next(self._steps, ["stop"]):
            self.do(step)

    def do(self, step):
        what, *data = [step] if isinstance(step, str) else step
        if what == "stop":
            raise Stop
        if what == "append":
            # The writer keeps the file that it opened, even when that has lost its name.
            self._writing = self._writing or self.path.open("ab", buffering=0)
            self._writing.write(data[0])
        elif what == "move":
            self._generation += 1
            self.path.rename(f"{self.path}.{self._generation}")
        elif what == "remove":
            self.path.unlink()
        elif what == "create":
            self.path.touch()
        elif what == "reopen":
            self._writing.close()
            self._writing = None
        elif what == "empty":
            os.truncate(self.path, 0)

    def follow(self, n_rows, **options):
        """Read until nothing more is written."""
        with mock.patch.object(sources, "time", SimpleNamespace(sleep=self.sleep)):
            try:
                yield from open_table(str(self.path), follow=True, **options).chunks(n_rows)
            except Stop:
                return
            finally:
                if self._writing is not None:
                    self._writing.close()


def cut(draw, text):
    """Cut text into pieces anywhere."""
    ends = sorted({0, len(text), *draw(st.lists(st.integers(0, len(text)), max_size=6))})
    return [text[a:b] for a, b in itertools.pairwise(ends)]


LINES = {
    "csv": ("x,y\n", lambda i: f"{i},{i}.5\n"),
    "csv_bare": ("", lambda i: f"{i},{i}.5\n"),
    "csv_quoted": ('"x","y"\n', lambda i: f'"{i}","{i}.5"\n'),
    "jsonl": ("", lambda i: json.dumps({"x": i, "y": i + 0.5}) + "\n"),
}


@st.composite
def histories(draw):
    """Draw a format and the steps in which its file is written."""
    kind = draw(st.sampled_from(list(LINES)))
    header, line = LINES[kind]
    numbers, steps = itertools.count(), []
    for k in range(draw(st.integers(1, 4))):
        text = header + "".join(line(next(numbers)) for _ in range(draw(st.integers(0 if k else 1, 5))))
        first, *pieces = [("append", piece.encode()) for piece in cut(draw, text)] or [("append", b"")]
        how = draw(st.sampled_from(["move", "move_late", "remove", "empty"])) if k else "begin"
        if how == "begin":
            steps += [["create"], [first]] if draw(st.booleans()) else [[first]]
        elif how == "empty":
            steps.append(["empty", first])
        elif how == "move_late":
            # The new file is there, and the old one still grows.
            rest = "".join(line(next(numbers)) for _ in range(draw(st.integers(0, 2))))
            steps += [["move", "create"], [("append", rest.encode())], ["reopen", first]]
        else:
            steps.append([how, "create", "reopen", first])
        steps += [[piece] for piece in pieces]
    return kind, steps


def complete_rows(kind, steps):
    """Yield the rows whose lines are complete after each step."""
    header, rows, text = LINES[kind][0], [], ""
    for step in steps:
        for what in step:
            if what in {"reopen", "empty"}:
                assert not text, "files end where a line ends"
            if isinstance(what, tuple):
                text += what[1].decode()
        *lines, text = text.split("\n")
        for line in lines:
            if line + "\n" != header:
                rows.append(json.loads(line)["x"] if kind == "jsonl" else int(line.split(",")[0].strip('"')))
        yield list(rows)


@given(history=histories(), n_rows=st.integers(1, 4))
def test_every_row_of_a_growing_file_is_read_once_and_without_delay(history, n_rows):
    kind, steps = history
    got = []
    waits = [[], *complete_rows(kind, steps)]
    expected = iter(waits)
    with tempfile.TemporaryDirectory() as folder:
        writer = Writer(
            Path(folder, "log"),
            steps,
            lambda: pytest.fail("a complete row was held back") if got != next(expected) else None,
        )
        for chunk in writer.follow(n_rows):
            assert 0 < len(chunk.rows) <= n_rows
            np.testing.assert_array_equal(chunk.rows[:, 1], chunk.rows[:, 0] + 0.5)
            got += chunk.rows[:, 0].tolist()
    assert got == waits[-1]


def follow(folder, steps, *, n_rows=10, **options):
    return list(Writer(folder / "log", steps).follow(n_rows, **options))


def rows_of(chunks):
    return [chunk.rows.ravel().tolist() for chunk in chunks]


def test_a_followed_file_resumes_at_an_offset_as_others_do(tmp_path):
    *_, chunk = follow(tmp_path, [[("append", b"x\n1\n2\n")], [("append", b"3\n")]])
    with (tmp_path / "log").open("a") as file:
        file.write("4\n5")
    later = Writer(tmp_path / "log", [[("append", b"\n6\n")]])
    with mock.patch.object(sources, "time", SimpleNamespace(sleep=later.sleep)):
        table = open_table(str(tmp_path / "log"), follow=True)
        table.seek(chunk.offset)
        chunks = table.chunks(10)
        assert [next(chunks).rows.ravel().tolist() for _ in range(2)] == [[4], [5, 6]]
        with pytest.raises(Stop):
            next(chunks)
    later._writing.close()


def test_offsets_after_a_rotation_are_those_of_the_new_file(tmp_path):
    *_, last = follow(
        tmp_path, [[("append", b"x\n1\n")], ["move", "create", "reopen", ("append", b"x\n2\n3\n4\n")]], n_rows=2
    )
    assert last.rows.tolist() == [[4]]
    (tmp_path / "log").write_text("x\n2\n3\n4\n5\n")
    table = open_table(str(tmp_path / "log"))
    table.seek(last.offset)
    assert rows_of(table.chunks(9)) == [[5]]


def test_a_new_file_may_come_without_its_header_but_not_with_another(tmp_path):
    begin = [("append", b"x,y\n1,2\n")]
    for again, expected in ((b"3,4\n", [[1, 2], [3, 4]]), (b"x,y\n3,4\n", [[1, 2], [3, 4]])):
        (tmp_path / again.hex()).mkdir()
        steps = [begin, ["move", "create", "reopen", ("append", again)]]
        assert rows_of(follow(tmp_path / again.hex(), steps)) == expected
    with pytest.raises(TableError, match=r"log: expected it to begin anew with 'x,y' but got 'y,x'"):
        follow(tmp_path, [begin, ["empty", ("append", b"y,x\n3,4\n")]])


@pytest.mark.parametrize(
    "how", [["empty"], ["empty", ("append", b"x\n2\n")], ["empty", ("append", b"x\n2\n3\n4\n5\n")]]
)
def test_a_line_lost_to_truncation_is_reported(tmp_path, how):
    steps = [[("append", b"x\n1\n77")], how, [("append", b"")]]
    with pytest.raises(TableError, match="log, line 3: the file was emptied before the line was complete"):
        follow(tmp_path, steps)
    (tmp_path / "log").unlink()
    writer = Writer(tmp_path / "log", steps)
    with mock.patch.object(sources, "time", SimpleNamespace(sleep=writer.sleep)):
        table = open_table(str(writer.path), follow=True, on_bad_rows="skip")
        got = []
        with pytest.raises(Stop):
            got.extend(chunk.rows.ravel().tolist() for chunk in table.chunks(10))
    writer._writing.close()
    assert table.n_skipped == 1
    assert "line 3" in table.first_skipped


def test_a_last_line_without_line_end_is_complete_when_its_file_has_lost_its_name(tmp_path):
    steps = [[("append", b"x\n1\n2")], ["move", "create", "reopen", ("append", b"x\n3\n")]]
    assert rows_of(follow(tmp_path, steps)) == [[1], [2], [3]]


def test_a_file_may_be_absent_for_a_while_even_before_its_first_line_is_complete(tmp_path):
    steps = [[("append", b"old")], ["move", "create", "reopen", ("append", b"x")], [("append", b"\n1\n")]]
    steps += [["remove"], [], ["create", "reopen", ("append", b"x\n2\n")]]
    assert rows_of(follow(tmp_path, steps)) == [[1], [2]]


def test_column_names_are_certain_before_rows_are_read(tmp_path):
    # Text and numbers in line one: the reader waits for the second, whose text in the same fields would decide.
    for second, times in ((b"10:01,3,4\n", ["10:00", "10:01"]), (b"7,3,4\n", ["7"])):
        (tmp_path / times[0]).mkdir()
        steps = [[("append", b"10:00,1")], [("append", b",2\n")], [("append", second)]]
        (chunk,) = follow(tmp_path / times[0], steps, time="0")
        assert chunk.times == times


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("x.npy", b"\x93NUMPY\x01\0", "only text can grow row by row; leave --follow out"),
        ("x.parquet", b"PAR1\x15\x04\x15\x10", "only text can grow"),
        ("x.npz", b"PK\x03\x04aaaa", "only text can grow"),
        ("x.arrow", b"\xff\xff\xff\xff\0\0\0\0", "only text can grow"),
        ("x.csv.gz", b"\x1f\x8b\x08\0\0\0\0\0\0\xff", "compressed files do not grow line by line; leave --follow out"),
    ],
)
def test_a_format_that_does_not_grow_line_by_line_is_refused(tmp_path, name, content, message):
    (tmp_path / name).write_bytes(content + b"\0" * 8)
    with pytest.raises(TableError, match=message):
        open_table(str(tmp_path / name), follow=True)


def test_a_folder_and_a_file_without_a_folder_cannot_be_followed(tmp_path):
    with pytest.raises(TableError, match="is a folder"):
        open_table(str(tmp_path), follow=True)
    with pytest.raises(TableError, match="neither the file nor its folder exists"):
        open_table(str(tmp_path / "no" / "log"), follow=True)
