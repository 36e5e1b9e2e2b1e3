"""Nothing that a device saved is lost, by power cuts at every byte of both slots, and unions at every time."""

from itertools import product
from typing import NamedTuple

import numpy as np
import pytest
from exports import NEEDS_COMPILER
from hypothesis import given
from hypothesis import strategies as st
from on_a_device import SLOT, Device

from streamkpca import StreamingKernelPCA
from streamkpca.export import to_device
from streamkpca.export.device_state import decode, encode
from streamkpca.kernels import RBF

pytestmark = [pytest.mark.slow, NEEDS_COMPILER]
WHOLE = 10**9
# A union brings so many rows of others.
N_OF_OTHERS = 1000
BEGUN = 64


class Record(NamedTuple):
    """How many rows a state has seen, and which union it began with."""

    n_rows: int
    origin: int


class InC:
    """A device whose unions are states with other numbers, and a cut of which leaves half of a record."""

    def __init__(self, device):
        self.device, self.half = device, len(device.erased) // 2
        device.slots = [bytearray(device.erased) for _ in "ab"]
        device.boot()

    @property
    def now(self):
        words = np.frombuffer(self.device.memory, "<u4", 10).tolist()
        return Record(n_rows=words[4], origin=words[9])

    def learn(self):
        self.device.learn(np.ones((1, 1)))

    def save(self, *, is_cut=False):
        slot = self.device.library.pump_slot()
        self.device.bytes_left = self.half if is_cut else WHOLE
        assert self.device.save() == -int(is_cut)
        return bytes(self.device.slots[slot])

    def receive(self, record, *, is_cut=False):
        self.device.bytes_left = self.half if is_cut else WHOLE
        self.device.receive(record)

    def take(self):
        return self.device.take()

    def boot(self):
        return self.device.boot()


def union_of(state, origin):
    """Make a union from a state."""
    values = decode(state)
    later = {"n_rows": [values["n_rows"][0] + N_OF_OTHERS, 0], "sequence": values["sequence"] + 1, "origin": origin}
    return encode(values | later | {"parent": values["crc"], "is_sent": 1})


EVENTS = ("learn", "save", "cut save", "union", "old union", "cut union", "boot")


def follow(device, begun, events):
    """Let a device go through events, and hold it to what was promised.

    `kept` is the newest state that was saved or taken, and `source` what it was made from if it was sent; `before` was
    kept before it. `waiting` is a union that was written whole, with its source, and `n_new` counts the rows since.
    """
    kept = before = source = waiting = None
    rows_of, n_new = {None: (device.now.n_rows, device.now.origin)}, 0

    def load(act):
        nonlocal kept, before, source, waiting, n_new
        if n_new and act == device.take:
            assert act() == -2
            return
        n_new, code = 0, act()
        if waiting is None:
            assert code == (-1 if kept is None else 0)
        elif kept is None or waiting[1] is kept:
            assert code == 0
            before, (kept, source), waiting = kept, waiting, None
        else:
            assert code == 1
            # Two unions of one state have the same rows of the device.
            if source is waiting[1] and device.now.origin == rows_of[waiting[0]][1]:
                (kept, source), waiting = waiting, (kept, source)

    for origin, event in enumerate(events, start=1):
        if event == "learn":
            device.learn()
            n_new += 1
        elif event == "boot":
            load(device.boot)
        elif event == "save":
            n_rows, n_new = rows_of[kept][0] + n_new, 0
            before, kept, source, waiting = kept, device.save(), None, None
            rows_of[kept] = n_rows, rows_of[before][1]
        elif event == "cut save":
            device.save(is_cut=True)
            waiting = None
            load(device.boot)
        else:
            made_from, is_cut = before if event == "old union" else kept, event == "cut union"
            union = union_of(begun if made_from is None else made_from, origin)
            rows_of[union] = rows_of[made_from][0] + N_OF_OTHERS, origin
            device.receive(union, is_cut=is_cut)
            waiting = None if is_cut else (union, made_from)
            load(device.boot if is_cut else device.take)
        now = device.now
        assert (now.n_rows - n_new, now.origin) == rows_of[kept], events


@pytest.fixture(scope="module")
def device(tmp_path_factory):
    """Return a device of one atom and one feature, whose state is small."""
    model = StreamingKernelPCA(1, kernel=RBF(0.5), max_atoms=1).partial_fit(np.linspace(-1.0, 1.0, BEGUN)[:, None])
    return Device(tmp_path_factory.mktemp("storage"), model)


def test_the_c_file_keeps_the_rules(device):
    begun = to_device(device.model)
    for events in product(EVENTS, repeat=3):
        follow(InC(device), begun, events)


@given(events=st.lists(st.sampled_from(EVENTS), max_size=60))
def test_the_c_file_keeps_the_rules_for_long(device, events):
    follow(InC(device), to_device(device.model), events)


@pytest.mark.parametrize("what", ["save", "union"])
@pytest.mark.parametrize("n_saves", [1, 2])
@pytest.mark.parametrize("erases", [True, False])
def test_a_cut_at_any_byte_leaves_the_newest_whole_state(device, what, n_saves, erases, monkeypatch):
    """Flash is erased before it is written; other storage keeps what was there behind the cut."""
    monkeypatch.setattr(device, "erases", erases)
    in_c = InC(device)
    for _ in range(n_saves):
        in_c.learn()
        newest = in_c.save()
    slots, n_rows = [bytes(slot) for slot in device.slots], in_c.now.n_rows
    union = union_of(newest, 7)
    for cut in range(len(newest) + 1):
        device.slots = [bytearray(slot) for slot in slots]
        assert device.boot() == 0
        in_c.learn()
        device.bytes_left = cut
        if what == "save":
            device.save()
        else:
            device.receive(union)
        assert device.boot() == 0
        gained = in_c.now.n_rows - n_rows
        if cut < len(newest):
            assert gained == 0
        else:
            assert gained == (1 if what == "save" else N_OF_OTHERS)
        in_c.learn()
        in_c.save()
        assert device.boot() == 0
        assert in_c.now.n_rows == n_rows + gained + 1


def test_a_flipped_bit_anywhere_leaves_the_state_before(device):
    in_c = InC(device)
    for _ in range(3):
        in_c.learn()
        newest = in_c.save()
    place, slots = [bytes(slot) for slot in device.slots].index(newest), [bytes(slot) for slot in device.slots]
    for bit in range(8 * len(newest)):
        device.slots = [bytearray(slot) for slot in slots]
        device.slots[place][bit // 8] ^= 1 << bit % 8
        assert device.boot() == 0
        assert in_c.now.n_rows == BEGUN + 2
        assert device.library.pump_slot() == place
    device.slots = [bytearray(len(newest)) for _ in slots]
    assert device.boot() == -1
    assert in_c.now.n_rows == BEGUN


def test_storage_that_fails_is_not_written_over(device):
    in_c = InC(device)
    for _ in range(2):
        in_c.learn()
        newest = in_c.save()
    slots = [bytes(slot) for slot in device.slots]
    assert decode(newest)["parent"] == decode(bytes(device.slots[device.library.pump_slot()]))["crc"]
    # Both slots are read, and then the newer one again, which fails, so the other one is taken, or fails too.
    n_reads = -(-len(newest) // 32)
    for n_good, expected, n_rows in ((3 * n_reads - 1, 0, BEGUN + 1), (2 * n_reads, -1, BEGUN)):
        left = iter(range(n_good))

        def read(slot, at, data, count, left=left, retries=n_good > 2 * n_reads):
            is_bad = next(left, None) is None and (not retries or bytes(device.slots[slot]) == newest)
            return -1 if is_bad else device._read(slot, at, data, count)

        assert device.boot() == 0
        assert device.library.pump_load(SLOT(read)) == expected
        assert in_c.now.n_rows == n_rows
        # A slot that held a whole state a moment ago is written over only if the other one was read.
        assert device.library.pump_slot() == (-1 if expected else device.slots.index(bytearray(newest)))
        assert device.save() == expected
        device.slots = [bytearray(slot) for slot in slots]
