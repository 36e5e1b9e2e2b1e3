"""Files of results lose nothing, whatever others did to them since they were written."""

import os

import numpy as np
import pytest

from streamkpca.tables import WRITTEN, TableError, Writer


@pytest.mark.parametrize("live", [False, True])
@pytest.mark.parametrize("form", WRITTEN)
def test_results_do_not_take_the_place_of_anything_else(form, live, tmp_path):
    path = tmp_path / f"a.{form}"
    path.write_text("row,time\n1,2024\n")
    fault = "expected no file, or results with the columns row, novelty, but it begins with 'row,time'; name another"
    with pytest.raises(TableError, match=fault), Writer(str(path), live=live) as writer:
        writer.write({"row": [1], "novelty": [0.5]})
    assert path.read_text() == "row,time\n1,2024\n"


# What stands in the file when a second run begins with rows 3 and 4, behind a mark after row 2; what it adds; and from
# where on what was there is another's.
_HEAD = '"row"\n'
_FOUND = {
    "as it was": (_HEAD + "1\n2\n", "3\n4\n", None),
    "with rows since the mark": (_HEAD + "1\n2\n3\n", "4\n", None),
    "with a row that was cut by a kill": (_HEAD + "1\n2\n33", "\n3\n4\n", 10),
    "with part of the next row": (_HEAD + "1\n2\n3", "\n4\n", None),
    "with all rows": (_HEAD + "1\n2\n3\n4\n", "", None),
    "edited after the mark": (_HEAD + "1\n2\n3\n9\n", "4\n", 12),
    "edited before the mark": (_HEAD + "1\n7\n3\n", "3\n4\n", 6),
    "trimmed to the latest": (_HEAD + "2\n", "3\n4\n", 6),
    "trimmed in the line": (_HEAD + "1\n2", "\n3\n4\n", 6),
    "trimmed to the header": (_HEAD, "3\n4\n", None),
    "emptied": ("", _HEAD + "3\n4\n", None),
    "removed": (None, _HEAD + "3\n4\n", None),
}


@pytest.mark.parametrize("found", _FOUND)
def test_live_results_lose_nothing_that_others_left_there(found, tmp_path):
    path, (there, added, differs_at) = tmp_path / "a.csv", _FOUND[found]
    with Writer(str(path), live=True) as writer:
        writer.write({"row": [1, 2]})
        mark = writer.mark()
    path.unlink() if there is None else path.write_text(there)
    with Writer(str(path), live=True, start=mark) as writer:
        for row in (3, 4):
            writer.write({"row": [row]})
        assert path.read_text() == (there or "") + added
        told = [f"{path}: holds other rows from byte {differs_at} on, which stay; results go on after them"]
        assert writer.notes == ([] if differs_at is None else told)
        # A third run goes on there without a word.
        mark = writer.mark()
    with Writer(str(path), live=True, start=mark) as writer:
        writer.write({"row": [5]})
        assert path.read_text() == (there or "") + added + "5\n"
        assert writer.notes == []


@pytest.mark.parametrize("start", [{}, {"path": 3, "byte": "7", "crc": None}, {"path": None, "byte": -3, "crc": 0}])
def test_a_mark_that_others_wrote_is_none(start, tmp_path):
    path = tmp_path / "a.csv"
    path.write_text(_HEAD + "1\n")
    if "path" in start and start["path"] is None:
        start = start | {"path": str(path.resolve())}
    with Writer(str(path), live=True, start=start) as writer:
        writer.write({"row": [1, 2]})
    assert path.read_text() == _HEAD + "1\n2\n"


@pytest.mark.skipif(os.name == "nt", reason="open files cannot be renamed")
@pytest.mark.parametrize("way", ["renamed", "renamed, and a new file made", "copied and emptied", "removed"])
def test_live_results_go_on_when_their_file_is_rotated(way, tmp_path):
    path, older = tmp_path / "a.csv", tmp_path / "a.csv.1"
    with Writer(str(path), live=True) as writer:
        writer.write({"row": np.arange(5)})
        if way.startswith("copied"):
            older.write_bytes(path.read_bytes())
            os.truncate(path, 0)
        else:
            path.rename(older)
        if way.endswith("made"):
            path.touch()
        if way == "removed":
            older.unlink()
        writer.write({"row": [5]})
        writer.write({"row": [6]})
        mark = writer.mark()
        assert len(writer.notes) == 1
    assert path.read_text() == _HEAD + "5\n6\n"
    assert way == "removed" or older.read_text() == _HEAD + "0\n1\n2\n3\n4\n"
    with Writer(str(path), live=True, start=mark) as writer:
        writer.write({"row": [7]})
    assert path.read_text() == _HEAD + "5\n6\n7\n"
