"""A C file that learns, compiled for this machine: rows go in, and states come out as a flash would keep them."""

import ctypes
import tempfile
from pathlib import Path

import numpy as np
from exports import COMPILER, STRICT, run

from streamkpca.export import device_state, to_c

FLAGS = ["-std=c99", "-ffp-contract=off", *STRICT]
LOOP = "void pump_all(const float *x, int n, int step, int *novel);\nvoid pump_all(const float *x, int n, int step, "
LOOP += "int *novel)\n{\n    for (; n > 0; --n, x += step) *novel++ = pump_update(x);\n}\n"
SLOT = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int, ctypes.c_uint32, ctypes.POINTER(ctypes.c_ubyte), ctypes.c_uint32)


def sequence(record):
    return device_state.decode(record)["sequence"]


class Device:
    """A device with two slots of erased storage; `writes_left` writes succeed before the power is cut."""

    def __init__(self, folder, model, **settings):
        source = Path(tempfile.mkdtemp(dir=folder), "pump.c")
        source.write_text(to_c(model, name="pump", learns=True, **settings) + LOOP, encoding="ascii")
        library = source.with_suffix(".so")
        run(COMPILER, *FLAGS, "-O1", "-shared", "-fPIC", source, "-o", library)
        self.library, self.model, self.writes_left = ctypes.CDLL(str(library)), model, 10**9
        self.erased = b"\xff" * device_state.record_size(model.max_atoms, model.n_features_in_)
        self.slots = [bytearray(self.erased) for _ in "ab"]
        self.callbacks = SLOT(self._write), SLOT(self._read)

    def _write(self, slot, at, data, count):
        self.writes_left -= 1
        if self.writes_left >= 0:
            self.slots[slot][at : at + count] = ctypes.string_at(data, count)
        return int(self.writes_left < 0)

    def _read(self, slot, at, data, count):
        ctypes.memmove(data, bytes(self.slots[slot][at : at + count]), count)
        return 0

    def save(self):
        return self.library.pump_save(self.callbacks[0])

    def saved(self):
        """Save, and return the record."""
        assert self.save() == 0
        return max((bytes(slot) for slot in self.slots if slot[0] != 0xFF), key=sequence)

    def load(self, data=None):
        """Load the newer slot, or a record in their place."""
        if data is not None:
            self.slots = [bytearray(data), bytearray(self.erased)]
        return self.library.pump_load(self.callbacks[1])

    def learn(self, rows):
        """Return for each row, before it is learned, whether it is novel."""
        rows = np.ascontiguousarray(rows, dtype=np.float32)
        novel = np.zeros(len(rows), dtype=np.int32)
        given, found = (np.ctypeslib.as_ctypes(part) for part in (rows.ravel(), novel))
        self.library.pump_all(given, *rows.shape, found)
        return novel

    def numbers_of(self, what, rows, *more):
        call = getattr(self.library, f"pump_{what}")
        call.restype = ctypes.c_float
        rows = np.ascontiguousarray(rows, dtype=np.float32)
        return np.array([call(np.ctypeslib.as_ctypes(row), *more) for row in rows])


def started(folder, model, **settings):
    """Return a device that has looked for a saved state and found none."""
    device = Device(folder, model, **settings)
    assert device.load() == -1
    return device
