"""A growing file gives every row once, as soon as its line is complete, also when it is replaced or emptied."""

import itertools
import json
import os
import tempfile
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamkpca.tables import Asked, Table, TableError
from streamkpca.tables import source as sources


class Stop(BaseException):
    """Raised where the reader would wait for ever."""


class Log:
    """A file that is written step by step; each step happens while its reader sleeps, and has read all there is.

    Steps are "move", "remove", "create", "empty", or bytes to append to the file that has the name when its writing
    begins, and until "reopen".
    """

    def __init__(self, path: Path, steps, seen=lambda: None) -> None:
        self.path, self._steps, self._seen, self._file, self._n = path, iter(steps), seen, None, 0
        self.notes: list[str] = []

    def sleep(self, seconds: float) -> None:
        assert seconds > 0
        self._seen()
        for step in next(self._steps, ["stop"]):
            if step == "stop":
                raise Stop
            if isinstance(step, bytes):
                self._file = self._file or self.path.open("ab", buffering=0)
                self._file.write(step)
            elif step == "reopen":
                self._file.close()
                self._file = None
            elif step == "move":
                self._n += 1
                self.path.rename(f"{self.path}.{self._n}")
            else:
                {"remove": os.unlink, "create": Path.touch, "empty": lambda path: os.truncate(path, 0)}[step](self.path)

    def batches(self, n_rows: int = 10, **options):
        """Read until nothing more is written."""
        with mock.patch.object(sources, "time", SimpleNamespace(sleep=self.sleep)):
            try:
                table = Table(str(self.path), Asked(follow=True, **options))
                self.notes = table.notes
                yield from table.batches(n_rows)
            except Stop:
                return
            finally:
                if self._file is not None:
                    self._file.close()


def rows_of(folder: Path, steps, **options) -> list[list[float]]:
    return [batch.numbers.ravel().tolist() for batch in Log(folder / "log", steps).batches(**options)]


LINES = {
    "csv": ("x,y\n", lambda i: f"{i},{i}.5\n"),
    "quoted": ('"x","y"\n', lambda i: f'"{i}","{i}.5"\n'),
    "jsonl": ("", lambda i: json.dumps({"x": i, "y": i + 0.5}) + "\n"),
}


@st.composite
def histories(draw):
    """Draw a format and the steps in which its file is written, in pieces cut anywhere."""
    kind = draw(st.sampled_from(list(LINES)))
    header, line = LINES[kind]
    numbers, steps = itertools.count(), []
    for k in range(draw(st.integers(1, 4))):
        text = (header + "".join(line(next(numbers)) for _ in range(draw(st.integers(1, 5))))).encode()
        ends = sorted({0, len(text), *draw(st.lists(st.integers(1, len(text)), max_size=6))})
        first, *pieces = [text[a:b] for a, b in itertools.pairwise(ends)]
        how = draw(st.sampled_from(["move", "move_late", "remove", "empty"])) if k else "begin"
        if how == "move_late":
            # The new file is there, and the old one still grows.
            rest = "".join(line(next(numbers)) for _ in range(draw(st.integers(1, 2))))
            steps += [["move", "create"], [rest.encode()], ["reopen", first]]
        else:
            before = {"begin": [], "empty": ["empty"]}.get(how, [how, "create", "reopen"])
            steps.append([*before, first])
        steps += [[piece] for piece in pieces]
    return kind, steps


def complete_rows(kind: str, steps):
    """Yield the rows whose lines are complete after each step."""
    header, rows, text = LINES[kind][0], [], ""
    for step in steps:
        text += b"".join(part for part in step if isinstance(part, bytes)).decode()
        *lines, text = text.split("\n")
        for line in lines:
            if line + "\n" != header:
                rows.append(json.loads(line)["x"] if kind == "jsonl" else int(line.split(",")[0].strip('"')))
        yield list(rows)


@given(history=histories(), n_rows=st.integers(1, 4))
def test_every_row_of_a_growing_file_is_read_once_and_without_delay(history, n_rows):
    kind, steps = history
    got, waits = [], [[], *complete_rows(kind, steps)]
    # The first row of CSV tells whether the line before it holds names.
    begun = next(i for i, rows in enumerate(waits) if rows)
    expected = iter([[]] * begun + waits[begun:])
    with tempfile.TemporaryDirectory() as folder:
        log = Log(Path(folder, "log"), steps, lambda: got != next(expected) and pytest.fail("a row was held back"))
        for batch in log.batches(n_rows):
            assert (batch.numbers[:, 1] == batch.numbers[:, 0] + 0.5).all()
            got += batch.numbers[:, 0].tolist()
    assert got == waits[-1]


def test_following_resumes_at_whole_lines(tmp_path):
    *_, last = Log(tmp_path / "log", [[b"x\n1\n2\n"], [b"3\n4"]]).batches()
    assert (last.numbers.tolist(), last.rows.tolist()) == ([[3]], [4])
    with (tmp_path / "log").open("a") as file:
        file.write("0\n5")
    (first, second) = Log(tmp_path / "log", [[b"\n6\n"]]).batches(start=last.position)
    assert (first.numbers.tolist(), first.rows.tolist()) == ([[40]], [5])
    assert (second.numbers.tolist(), second.rows.tolist()) == ([[5], [6]], [6, 7])


def test_positions_and_lines_after_a_replacement_are_those_of_the_new_file(tmp_path):
    steps = [[b"x\n1\n"], ["move", "create", "reopen", b"x\n2\n3\n4\n"]]
    *_, last = Log(tmp_path / "log", steps).batches(2)
    assert (last.numbers.tolist(), last.rows.tolist()) == ([[4]], [4])
    (tmp_path / "log").write_text("x\n2\n3\n4\n5\n")
    assert [batch.rows.tolist() for batch in Table(str(tmp_path / "log"), Asked(start=last.position)).batches(9)] == [
        [5]
    ]


def test_a_file_that_is_another_one_now_is_read_from_its_beginning(tmp_path):
    *_, last = Log(tmp_path / "log", [[b"x\n1\n2\n"]]).batches()
    (tmp_path / "log").write_text("x\n7\n8\n")
    log = Log(tmp_path / "log", [])
    assert [batch.numbers.ravel().tolist() for batch in log.batches(start=last.position)] == [[7, 8]]
    assert "begins with other text" in log.notes[0]
    assert log.notes[0].endswith("reading it from its beginning")


def test_a_line_that_was_never_completed_is_left_out_and_told(tmp_path):
    for how in (["empty", b"x\n2\n3\n4\n5\n"], ["move", "create", "reopen", b"x\n2\n3\n4\n5\n"]):
        log = Log(tmp_path / "log", [[b"x\n1\n77"], how])
        assert [batch.numbers.ravel().tolist() for batch in log.batches()] == [[1], [2, 3, 4, 5]]
        assert ["reading it from its beginning" in note for note in log.notes] == [True, False]
        assert "its last line, 3, was never completed" in log.notes[1]
        (tmp_path / "log").unlink()


def test_a_new_file_may_come_without_its_header_but_not_with_another(tmp_path):
    begin, anew = [b"x,y\n1,2\n"], ["move", "create", "reopen"]
    assert rows_of(tmp_path, [begin, [*anew, b"3,4\n"]]) == [[1, 2], [3, 4]]
    (tmp_path / "log").unlink()
    with pytest.raises(TableError, match=r"log: expected it to begin anew with 'x,y' but got 'y,x'"):
        rows_of(tmp_path, [begin, ["empty", b"y,x\n3,4\n"]])


def test_a_file_may_be_absent_at_first_and_for_a_while(tmp_path):
    steps = [[], [b"x\n1\n"], ["remove"], [], ["create", "reopen", b"x\n2\n"]]
    assert rows_of(tmp_path, steps) == [[1], [2]]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("x.npy", b"\x93NUMPY\x01\0" + bytes(99), r"only JSON lines and CSV grow row by row"),
        ("x.arrow", b"ARROW1\0\0", r"only JSON lines and CSV grow row by row"),
        ("x.csv.gz", b"\x1f\x8b\x08", "compressed files do not grow line by line; leave --follow out"),
        ("absent/x.csv", None, "no such file"),
    ],
)
def test_a_format_that_does_not_grow_line_by_line_is_refused(tmp_path, name, content, message):
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(TableError, match=message):
        Table(str(tmp_path / name), Asked(follow=True))
