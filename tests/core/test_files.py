"""One process at a time, told apart from file systems that know no locks."""

import errno
import sys

import pytest

from streamkpca._core import files


def test_a_file_is_locked_until_it_is_closed(tmp_path):
    with open(tmp_path / "file", "wb") as owner, open(tmp_path / "file", "wb") as other:
        assert files.try_lock(owner.fileno()) is True
        assert files.try_lock(other.fileno()) is False
        owner.close()
        assert files.try_lock(other.fileno()) is True


@pytest.mark.skipif(sys.platform == "win32", reason="Windows locks by other calls")
def test_files_without_locks_can_be_used(tmp_path, monkeypatch):
    def refuse(descriptor, operation):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(files.fcntl, "flock", refuse)
    with open(tmp_path / "file", "wb") as file:
        assert files.try_lock(file.fileno()) is None
