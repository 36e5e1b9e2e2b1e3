"""A C file that learns, compiled for this machine: rows go in, and states come out as a flash would keep them."""

import ctypes
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from exports import COMPILER, STRICT, run

WRITE = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int, ctypes.c_uint32, ctypes.POINTER(ctypes.c_ubyte), ctypes.c_uint32)


class Device:
    """The device of a C file, with its two slots."""

    def __init__(self, text: str, name: str, folder: Path, n_features: int) -> None:
        folder = Path(tempfile.mkdtemp(dir=folder))
        (folder / "device.c").write_text(text, encoding="ascii")
        run(COMPILER, "-std=c99", *STRICT, "-O1", "-shared", "-fPIC", folder / "device.c", "-o", folder / "d.so", "-lm")
        self.library, self.name, self.slots = ctypes.CDLL(str(folder / "d.so")), name, [bytearray(), bytearray()]
        self.row = np.ctypeslib.ndpointer(np.float32, shape=(n_features,), flags="C_CONTIGUOUS")
        self.load()

    def learn(self, rows: Any) -> np.ndarray:
        """Return for each row, before it is learned, whether it is novel."""
        update = getattr(self.library, f"{self.name}_update")
        update.argtypes = [self.row]
        return np.array([update(row) for row in np.ascontiguousarray(rows, dtype=np.float32)])

    def novelty(self, rows: Any) -> np.ndarray:
        """Return the scores of rows."""
        score = getattr(self.library, f"{self.name}_novelty")
        score.argtypes, score.restype = [self.row], ctypes.c_float
        return np.array([score(row) for row in np.ascontiguousarray(rows, dtype=np.float32)])

    def save(self) -> bytes:
        """Save, and return the slot that was written."""
        written = []

        def write(slot: int, at: int, data: Any, count: int) -> int:
            written.append(slot)
            self.slots[slot][at : at + count] = bytes(data[:count])
            return 0

        assert getattr(self.library, f"{self.name}_save")(WRITE(write)) == 0
        return bytes(self.slots[written[0]])

    def load(self, data: bytes | None = None) -> int:
        """Load the newer slot, or a state in their place."""
        if data is not None:
            self.slots = [bytearray(data), bytearray()]

        def read(slot: int, at: int, data: Any, count: int) -> int:
            found = self.slots[slot][at : at + count]
            if len(found) < count:
                return -1
            ctypes.memmove(data, bytes(found), count)
            return 0

        return int(getattr(self.library, f"{self.name}_load")(WRITE(read)))
