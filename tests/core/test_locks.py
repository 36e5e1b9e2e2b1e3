"""One process at a time, told apart from file systems that know no files."""

import errno
import sys

import pytest

from streamkpca._core import files


def test_a_folder_is_locked_until_its_file_is_closed(tmp_path):
    owner = files.lock_folder(tmp_path)
    assert files.lock_folder(tmp_path) is None
    owner.close()
    files.lock_folder(tmp_path).close()


@pytest.mark.skipif(sys.platform == "win32", reason="Windows locks by other calls")
def test_a_folder_without_locks_can_be_used(tmp_path, monkeypatch):
    def refuse(descriptor, operation):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(files.fcntl, "flock", refuse)
    with open(tmp_path / "file", "wb") as file:
        assert files.try_lock(file.fileno()) is None
    files.lock_folder(tmp_path).close()
