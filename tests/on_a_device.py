"""A C file that learns, compiled for this machine: rows go in, and states come out as a flash would keep them."""

import ctypes
import tempfile
from pathlib import Path

import numpy as np
from exports import COMPILER, STRICT, run

from streamkpca.export import device_state, to_c_learner
from streamkpca.export.device_state import MEMORY

FLAGS = ["-std=c99", "-ffp-contract=off", *STRICT]
LOOP = "void pump_all(const float *x, int n, int step, int *novel);\nvoid pump_all(const float *x, int n, int step, "
LOOP += "int *novel)\n{\n    for (; n > 0; --n, x += step) *novel++ = pump_update(x);\n}\n"
# What a power cut does to the memory, and what it is.
LOOP += "void pump_off(void);\nvoid pump_off(void) { pump_now.n_atoms = 0u; pump_newest = -1; pump_has_learned = 0; }\n"
LOOP += "const void *pump_state(void);\nconst void *pump_state(void) { return &pump_now; }\n"
SLOT = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int, ctypes.c_uint32, ctypes.POINTER(ctypes.c_ubyte), ctypes.c_uint32)


class Device:
    """A device with two slots of erased storage; the power is cut after `bytes_left` more bytes are written.

    Flash is erased before a slot is written; other storage is not.
    """

    erases = True

    def __init__(self, folder, model, **settings):
        source = Path(tempfile.mkdtemp(dir=folder), "pump.c")
        source.write_text(to_c_learner(model, name="pump", **settings) + LOOP, encoding="ascii")
        library = source.with_suffix(".so")
        run(COMPILER, *FLAGS, "-O1", "-shared", "-fPIC", source, "-o", library)
        self.library, self.model, self.bytes_left = ctypes.CDLL(str(library)), model, 10**9
        self.erased = b"\xff" * device_state.layout_of(model.max_atoms, model.n_features_in_).itemsize
        self.slots = [bytearray(self.erased) for _ in "ab"]
        self.callbacks = SLOT(self._write), SLOT(self._read)

    def _write(self, slot, at, data, count):
        if at == 0 and self.erases and self.bytes_left > 0:
            self.slots[slot][:] = self.erased
        n_written = min(count, self.bytes_left)
        self.slots[slot][at : at + n_written] = ctypes.string_at(data, n_written)
        self.bytes_left -= n_written
        return int(n_written < count)

    def _read(self, slot, at, data, count):
        ctypes.memmove(data, bytes(self.slots[slot][at : at + count]), count)
        return 0

    def save(self):
        return self.library.pump_save(self.callbacks[0])

    def saved(self):
        """Save, and return the record."""
        slot = self.library.pump_slot()
        assert self.save() == 0
        return bytes(self.slots[slot])

    def load(self, data=None):
        """Load the newer slot, or a record in their place; rows that were not saved are lost."""
        if data is not None:
            self.slots = [bytearray(data), bytearray(self.erased)]
        self.library.pump_reset()
        return self.take()

    def take(self):
        """Load as a device that runs."""
        return self.library.pump_load(self.callbacks[1])

    def receive(self, record):
        """Write a state from home where it belongs, and return whether the power was not cut."""
        return not self._write(self.library.pump_slot(), 0, ctypes.create_string_buffer(record), len(record))

    def boot(self):
        """Begin again after a power cut."""
        self.library.pump_off()
        self.bytes_left = 10**9
        return self.take()

    @property
    def memory(self):
        """The memory as it would be saved, without the constants and the checksum."""
        self.library.pump_state.restype = ctypes.c_void_p
        layout = device_state.layout_of(self.model.max_atoms, self.model.n_features_in_)
        return ctypes.string_at(self.library.pump_state(), sum(layout[field.name].itemsize for field in MEMORY))

    def learn(self, rows):
        """Return what is said of each row, before it is learned."""
        rows = np.ascontiguousarray(rows, dtype=np.float32)
        novel = np.zeros(len(rows), dtype=np.int32)
        given, found = (np.ctypeslib.as_ctypes(part) for part in (rows.ravel(), novel))
        self.library.pump_all(given, *rows.shape, found)
        return novel

    def numbers_of(self, what, rows):
        call = getattr(self.library, f"pump_{what}")
        call.restype = ctypes.c_float
        rows = np.ascontiguousarray(rows, dtype=np.float32)
        return np.array([call(np.ctypeslib.as_ctypes(row)) for row in rows])

    def explain(self, rows):
        """Return the most surprising feature of each row, what is expected of all, and how surprising each is."""
        rows = np.ascontiguousarray(rows, dtype=np.float32)
        expected, terms = np.empty((2, *rows.shape), dtype=np.float32)
        arrays = zip(rows, expected, terms, strict=True)
        return [self.library.pump_explain(*map(np.ctypeslib.as_ctypes, row)) for row in arrays], expected, terms


def started(folder, model, **settings):
    """Return a device that has looked for a saved state and found none."""
    device = Device(folder, model, **settings)
    assert device.load() == -1
    return device
