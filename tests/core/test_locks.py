"""One process at a time, told apart from file systems that know no locks."""

import errno
import sys

import pytest

from streamkpca._core import locks


def test_a_folder_is_locked_until_its_file_is_closed(tmp_path):
    owner = locks.lock_folder(tmp_path)
    assert locks.lock_folder(tmp_path) is None
    owner.close()
    locks.lock_folder(tmp_path).close()


@pytest.mark.skipif(sys.platform == "win32", reason="Windows locks by other calls")
def test_a_folder_without_locks_can_be_used(tmp_path, monkeypatch):
    def refuse(descriptor, operation):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(locks.fcntl, "flock", refuse)
    with open(tmp_path / "file", "wb") as file:
        assert locks.try_lock(file.fileno()) is None
    locks.lock_folder(tmp_path).close()
