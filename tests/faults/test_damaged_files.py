"""Damaged and forged files: each is refused by a CheckpointError, or loads; nothing runs, nothing takes much memory.

HYPOTHESIS_PROFILE=nightly damages a thousand files in each way, and tries every change of every entry and array.
"""

import json
import os
import subprocess
import sys
import tracemalloc
from collections import Counter

import numpy as np
from corruptions import CHANGED_ENTRIES, changed_arrays, entries, models, repacked, unpacked, with_entry

from streamkpca import StreamingKernelPCA
from streamkpca.errors import CheckpointError

NIGHTLY = os.environ.get("HYPOTHESIS_PROFILE") == "nightly"
MODELS = models()
FILES = {name: model.to_bytes({"offset": 1}) for name, model in MODELS.items()}


def test_forged_contents_are_refused_or_load():
    """With correct checksums. What loads is saved again as it was, but it may answer nonsense."""
    outcomes, number = Counter[str](), 0
    every = 1 if NIGHTLY else 7
    for data in FILES.values():
        header, arrays = unpacked(data)
        changes = [(path, None, value) for path in entries(header) for _, value in CHANGED_ENTRIES]
        changes += [(None, name, value) for name, array in arrays.items() for value in changed_arrays(array)]
        for path, name, value in changes:
            number += 1
            if number % every:
                continue
            try:
                forged = repacked(
                    header if path is None else with_entry(header, path, value),
                    arrays if name is None else {**arrays, name: value},
                )
                model = StreamingKernelPCA.from_bytes(forged)
            except CheckpointError:
                outcomes["refused"] += 1
            else:
                model.to_bytes()
                outcomes["loaded"] += 1
    assert outcomes["refused"] > outcomes["loaded"] > 0


def test_loading_takes_the_length_of_the_file():
    model = StreamingKernelPCA(4, max_atoms=256).partial_fit(np.random.default_rng(0).normal(size=(3000, 16)))
    data = model.to_bytes()
    tracemalloc.start()
    StreamingKernelPCA.from_bytes(data)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1.5 * len(data) + 2**20


HOSTILE = """
import sys
from streamkpca import StreamingKernelPCA
from streamkpca.errors import CheckpointError

def audit(event, arguments):
    if watching and event in ("open", "exec", "compile", "import", "os.system", "pickle.find_class"):
        print("forbidden:", event, arguments[:1])

watching = False
sys.addaudithook(audit)
paths = sys.stdin.read().split()
files = [open(path, "rb").read() for path in paths]
for data in files[:1] * 2 + files:
    try:
        StreamingKernelPCA.from_bytes(data)
    except CheckpointError as error:
        print("refused:", error)
    watching = True
"""


def test_nothing_is_written_run_or_unpickled(tmp_path):
    header, arrays = unpacked(FILES["fitted"])
    evil = {
        "good": FILES["fitted"],
        "kernel": repacked({**header, "kernels": ["__import__('os').system('true')"] * 2}, arrays),
        "type": repacked({**header, "kernels": [json.dumps({"type": "os.system"})] * 2}, arrays),
        "control": repacked({**header, "format": "\x1b[31m"}, arrays),
        "pickle": b"cos\nsystem\n(S'true'\ntR.",
    }
    for name, data in evil.items():
        (tmp_path / name).write_bytes(data)
    paths = "\n".join(str(tmp_path / name) for name in evil)
    done = subprocess.run(
        [sys.executable, "-c", HOSTILE], input=paths, capture_output=True, text=True, check=True, timeout=120
    )
    lines = done.stdout.splitlines()
    assert len(lines) == 4, done.stdout
    assert all(line.startswith("refused: ") and line.isprintable() for line in lines), done.stdout
