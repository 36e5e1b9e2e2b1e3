"""The bytes of a checkpoint: there is one way to write them, and every other file is refused."""

import io
import json
import struct
import tracemalloc
import zipfile

import numpy as np
import pytest

from streamkpca import StreamingKernelPCA, kernels
from streamkpca.checkpoint.archive import header_text, read_archive, write_archive
from streamkpca.errors import CheckpointError

ROWS = np.random.default_rng(0).normal(size=(300, 3))
ARRAYS = {
    "matrix": np.arange(6.0).reshape(2, 3).T,
    "empty": np.empty((0, 3), dtype=np.float32),
    "positions": np.arange(4),
    "big": np.arange(3, dtype=">f8"),
    "flags": np.array([True, False]),
}


def packed(header, arrays, listed=None):
    """Return the bytes of a checkpoint, whose header may list other arrays than there are."""
    text = header_text(header, arrays)
    if listed is not None:
        text = json.dumps({**json.loads(text), "arrays": listed}).encode()
    file = io.BytesIO()
    write_archive(file, text, arrays)
    return file.getvalue()


@pytest.fixture(scope="module")
def checkpoint():
    model = StreamingKernelPCA(2, kernel=kernels.RBF(0.3), max_atoms=8, block_size=32, reservoir_size=20)
    return model.partial_fit(ROWS).to_bytes({"offset": 3})


def test_what_is_written_is_read_here_and_by_numpy():
    data = packed({"b": [1, None, "ü"], "a": 0.1}, ARRAYS)
    assert data == packed({"a": 0.1, "b": [1, None, "ü"]}, dict(reversed(ARRAYS.items())))
    header, read = read_archive(io.BytesIO(data))
    assert (header["a"], header["b"]) == (0.1, [1, None, "ü"])
    with np.load(io.BytesIO(data), allow_pickle=False) as theirs, zipfile.ZipFile(io.BytesIO(data)) as archive:
        assert archive.testzip() is None
        assert json.loads(theirs["header.json"]) == header
        for name, array in ARRAYS.items():
            np.testing.assert_array_equal(read[name], array)
            np.testing.assert_array_equal(theirs[name], array)
            assert read[name].dtype == array.dtype.newbyteorder("=")
            assert read[name].flags.carray


def test_no_byte_may_change_be_missing_or_come_in_addition(checkpoint):
    places = [*range(0, 200), *range(200, len(checkpoint), 211), *range(len(checkpoint) - 200, len(checkpoint))]
    for place in places:
        damaged = bytearray(checkpoint)
        damaged[place] ^= 0x10
        for data in (bytes(damaged), checkpoint[:place], checkpoint[:place] + b"\0" + checkpoint[place:]):
            with pytest.raises(CheckpointError):
                StreamingKernelPCA.from_bytes(data)
    for data in (checkpoint + b"\0", b"\0" + checkpoint, checkpoint * 2):
        with pytest.raises(CheckpointError):
            StreamingKernelPCA.from_bytes(data)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "this is not a checkpoint: it has only 0 bytes"),
        (b"a" * 1000, "this is not a checkpoint: it does not begin with 'header.json'"),
        (packed({}, {})[:-1], "it does not end as a checkpoint does"),
        (packed({"format": "else"}, {}), "an archive, but not a checkpoint of a stream"),
        (packed({"version": 2}, {}), "version 2, and this release reads version 1; install the release that wrote it"),
        (packed({}, {}, [1]), "lacks the list of arrays"),
        (packed({}, {}, {"a": ["<f8", [2**40]]}), r"'a' of type <f8 and shape \(1099511627776,\) needs 8796093022208"),
        (packed({}, {}, {"a": ["<f8", [2**70]]}), "lists no plain array as 'a'"),
        (packed({}, {}, {"a": ["<f8", [2**40, 2**40, 0]]}), "lists no plain array as 'a'"),
        (packed({}, {}, {"a": ["|O", [1]]}), "lists no plain array"),
        (packed({}, {}, {"a": ["<f8", [1, 1, 1, 1]]}), "lists no plain array"),
        (packed({}, {"a": np.zeros(3)}, {"a": ["<f8", [2]]}), "the bytes of 'a' are not those that were written"),
        (packed({}, {"a": np.zeros(3)}, {"a": ["<i8", [3]]}), "the bytes of 'a' are not those"),
        (packed({}, {"a": np.zeros(3)}, {"b": ["<f8", [3]]}), "the bytes of 'b' are not those"),
        (packed({}, {"a": np.zeros(3)}, {}), "it does not end as a checkpoint does"),
    ],
    ids=lambda value: value[:40] if isinstance(value, str) else "",
)
def test_files_are_refused_by_what_is_wrong_with_them(data, message):
    with pytest.raises(CheckpointError, match=f"from_bytes: .*{message}"):
        StreamingKernelPCA.from_bytes(data)


@pytest.mark.parametrize("text", [b"[1]", b"{", b'{"a":NaN}', b'{"a":"\xfc"}', b"[" * 100_000, b"1" * 10_000])
def test_headers_that_are_no_json_objects_are_refused(text):
    file = io.BytesIO()
    write_archive(file, text, {})
    with pytest.raises(CheckpointError, match=r"its header is not JSON|not a checkpoint"):
        read_archive(file)


def test_sizes_are_compared_with_the_file_before_memory_is_taken(checkpoint):
    """A header may claim much, but no more is allocated than the file is long, and that once."""
    lying = [packed({}, {}, {"a": ["<f8", [2**30]]}), packed({}, {}, {f"a{i}": ["<f8", [2**13]] for i in range(1000)})]
    # The length of the header.
    lying.append(checkpoint[:53] + struct.pack("<Q", 2**40) + checkpoint[61:])
    for data in lying:
        tracemalloc.start()
        with pytest.raises(CheckpointError):
            StreamingKernelPCA.from_bytes(data)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 2**21
