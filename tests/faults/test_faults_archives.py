"""Crafted archives: every trick of the zip format, of JSON and of numpy's preambles, tried on whole checkpoints.

Each loads as the model that was saved or as another consistent one, or a CheckpointError says plainly why not. Loading
takes bounded memory, ends, and writes, runs and unpickles nothing. HYPOTHESIS_PROFILE=nightly tries many more.
"""

import gzip
import json
import os
import struct
import subprocess
import sys
import tarfile
import time
import tracemalloc
import warnings
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from archives import ALL_ONES, END, ENTRY, HEADER, Part, large_field, parts_of, with_part, zipped
from corruptions import (
    PROBE,
    as_npy,
    assert_legitimate,
    entries,
    models,
    repacked,
    unpacked,
    with_entry,
    without_entry,
)
from test_damaged_files import FREE_ARRAYS

from streamkpca import Checkpointer, CheckpointError, StreamingKernelPCA, kernels, load, merge
from streamkpca.errors import CheckpointWarning, SparsityWarning
from streamkpca.monitoring import Monitor

pytestmark = pytest.mark.faults

NIGHTLY = os.environ.get("HYPOTHESIS_PROFILE") == "nightly"
# A load that takes longer hangs; usually it takes 5 ms.
LONGEST = 60.0
# Memory beside twice the file: what Python and numpy take for any file, and for a header of 4 MB full of lists, or a
# kernel on 130,000 columns.
FEW_MB = 16 * 2**20
# Beyond the path, the name of the method and the quotation of the file.
LONGEST_MESSAGE = 800

MODELS = {name: model.to_bytes({"offset": 1}) for name, model in models().items()}
WHOLE = MODELS["fading"]
PARTS = parts_of(WHOLE)
LAST = len(PARTS) - 1
# The name of one array, whose place in the archive is in the middle.
NUMBER = next(i for i, part in enumerate(PARTS) if part.name == b"jury.rows.npy")
NAME, DATA = PARTS[NUMBER].name, PARTS[NUMBER].data


class Tally:
    """Counts of outcomes, the longest time and the most memory beyond twice the file."""

    def __init__(self) -> None:
        self.outcomes: Counter[str] = Counter()
        self.longest = 0.0
        self.most = 0

    def try_file(self, data: bytes, *, whole: bytes = WHOLE, watch_memory: bool = True) -> str:
        """Load a file and tell what came of it: "same", "another" or the error's text."""
        start = time.perf_counter()
        if watch_memory:
            tracemalloc.start()
        try:
            model, text = StreamingKernelPCA.from_bytes(data), ""
        except CheckpointError as error:
            model, text = None, str(error)
        finally:
            if watch_memory:
                self.most = max(self.most, tracemalloc.get_traced_memory()[1] - 2 * len(data))
                tracemalloc.stop()
            self.longest = max(self.longest, time.perf_counter() - start)
        if model is None:
            assert_plain(text)
            self.outcomes["refused"] += 1
            return text
        if model.to_bytes(model.extra_) == whole:
            self.outcomes["the same model"] += 1
            return "same"
        self.outcomes["another consistent model"] += 1
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SparsityWarning)
            try:
                assert_legitimate(model)
            except ValueError as error:
                # A model without rows may have a kernel that refuses all of them, in a few words.
                refuses = "limit is" in str(error) or "choose columns that exist" in str(error)
                if model.__sklearn_is_fitted__() or not refuses or len(str(error)) > LONGEST_MESSAGE:
                    raise
        return "another"

    def report(self, name: str) -> None:
        counts = ", ".join(f"{count} {outcome}" for outcome, count in sorted(self.outcomes.items()))
        memory = f", at most {max(self.most, 0) / 2**20:.1f} MB beyond twice the file" if self.most else ""
        print(f"{name}: {counts}; the longest took {self.longest:.2f} s{memory}")
        assert self.longest < LONGEST
        assert self.most <= FEW_MB


def assert_plain(text: str) -> None:
    assert text.startswith("from_bytes: ")
    assert len(text) < LONGEST_MESSAGE
    assert text.isprintable()


# Archives that say the same in another way


def harmless() -> Iterator[tuple[str, bytes]]:
    yield "as it was", zipped(PARTS)
    yield "members in another order", zipped(PARTS[::-1])
    yield "another order in the list alone", zipped(PARTS, listed=range(LAST, -1, -1))
    yield "names in UTF-8", zipped(with_part(PARTS, NUMBER, flags=0x0800))
    yield "a member's comment", zipped(with_part(PARTS, NUMBER, comment=b"nothing" * 100))
    yield (
        "times of Unix",
        zipped(with_part(PARTS, NUMBER, local_extra=b"UT\x05\x00\x01abcd", central_extra=b"UT\x05\x00\x01abcd")),
    )
    yield (
        "another path in an extra field",
        zipped(
            with_part(
                PARTS, NUMBER, central_extra=b"\x75\x70\x0a\x00\x01" + struct.pack("<L", zlib.crc32(NAME)) + b"other"
            )
        ),
    )
    for kind in (0o120777, 0o040755, 0o010644, 0o100000 | 0o6777):
        yield f"attributes {kind:o}", zipped(with_part(PARTS, NUMBER, central={"attributes": kind << 16 | 0x10}))
    yield "a later version, another system", zipped(with_part(PARTS, NUMBER, central={"needed": 999, "made": 0xFFFF}))
    yield "dates", zipped(with_part(PARTS, NUMBER, central={"date": 0xFFFF, "time": 0xFFFF}, local={"date": 0}))
    size = len(DATA)
    yield (
        "sizes twice before the data, as numpy writes them",
        zipped(with_part(PARTS, NUMBER, local_extra=large_field(size, size))),
    )
    yield "sizes in the extra field alone", zipped(
        with_part(
            PARTS, NUMBER, local_extra=large_field(size, size), central_extra=large_field(size, size),
            local={"size": ALL_ONES, "stored": ALL_ONES}, central={"size": ALL_ONES, "stored": ALL_ONES},
        )
    )  # fmt: skip
    offset = sum(HEADER.size + len(part.name) + len(part.data) for part in PARTS[:NUMBER])
    yield (
        "an offset in the extra field alone",
        zipped(with_part(PARTS, NUMBER, central_extra=large_field(offset), central={"offset": ALL_ONES})),
    )
    yield "the end of a large archive beside the plain one", zipped(PARTS, large_end={})
    yield (
        "the end of a large archive alone",
        zipped(PARTS, large_end={}, end={"here": 0xFFFF, "count": 0xFFFF, "size": ALL_ONES, "offset": ALL_ONES}),
    )
    text = json.loads(PARTS[0].data)
    for how in ({"indent": 3}, {"separators": (" ,\t", "\r\n: ")}):
        yield f"a header with {how}", zipped(with_part(PARTS, 0, data=json.dumps(text, **how).encode()))
    yield (
        "keys of the header in another order",
        zipped(with_part(PARTS, 0, data=json.dumps(dict(reversed(text.items()))).encode())),
    )
    yield "a key that nobody knows", zipped(with_part(PARTS, 0, data=json.dumps({**text, "": [None]}).encode()))


def test_archives_that_say_the_same_in_another_way_load_as_the_same_model() -> None:
    tally = Tally()
    assert parts_of(zipped(PARTS)) == PARTS
    for name, data in harmless():
        assert tally.try_file(data) == "same", name
    tally.report("harmless archives")


# Archives that must be refused, as there is more than one way to read them, or none


def odd_names() -> Iterator[bytes]:
    for start in (
        b"../",
        b"/",
        b"./",
        b"C:\\",
        b"C:",
        b"\\\\host\\",
        b"..\\",
        b"a/../",
        b"//",
        b"\0",
        b" ",
        b"\xef\xbb\xbf",
    ):
        yield start + NAME
    for end in (b" ", b".", b"/", b"\0", b"\0evil", b":stream", b"\n", b"\xff", "\u2024npy".encode(), b"%00"):
        yield NAME + end
    yield from (NAME.upper(), NAME.title(), NAME[:-4], NAME.replace(b".", b"/"), b"", b"\0", b"\xff\xfe", b"n" * 60_000)
    yield from ("j\u0443ry.rows.npy".encode(), "jury\u200b.rows.npy".encode(), b"jury.rows.npy;1", b"CON", b"\x1b[31m")


def refused_names() -> Iterator[tuple[str, bytes]]:
    for name in odd_names():
        for flags in (0, 0x0800):
            for where, changes in (
                ("everywhere", {"name": name}),
                ("in the list", {"central": {"name": name, "name_length": len(name)}}),
                ("before the data", {"local": {"name": name, "name_length": len(name)}}),
            ):
                yield f"{name[:30]!r} {where}", zipped(with_part(PARTS, NUMBER, flags=flags, **changes))
        yield f"{name[:30]!r} besides", zipped([*PARTS, Part(name, b"more")])


def refused_sizes() -> Iterator[tuple[str, bytes]]:
    size = len(DATA)
    for wrong in (0, size - 1, size + 1, 2**31, ALL_ONES - 1, ALL_ONES):
        for changes in ({"size": wrong}, {"stored": wrong}, {"size": wrong, "stored": wrong}):
            yield f"listed as {changes}", zipped(with_part(PARTS, NUMBER, central=changes))
            yield f"headed as {changes}", zipped(with_part(PARTS, NUMBER, local=changes))
            yield f"both as {changes}", zipped(with_part(PARTS, NUMBER, central=changes, local=changes))
    ones = {"size": ALL_ONES, "stored": ALL_ONES}
    for wrong in (0, size - 1, size + 1, 2**32, 2**62, 2**63, 2**64 - 1):
        for numbers in ((wrong, wrong), (size, wrong), (wrong, size), (wrong,), (size, size, wrong)):
            extra = large_field(*numbers)
            for ones_in in ({}, ones):
                yield f"{numbers} in the list", zipped(with_part(PARTS, NUMBER, central=ones_in, central_extra=extra))
                yield f"{numbers} before the data", zipped(with_part(PARTS, NUMBER, local=ones_in, local_extra=extra))
    for extra in (
        b"\1", b"\1\0\1", b"\1\0\x10\0" + bytes(8), large_field(), large_field(size), large_field(size, size, size),
        large_field(size, size) * 2, b"\1\0\x0c\0" + bytes(12), b"UT\xff\xff", b"UT\5\0abcd", b"\0\0\0",
    ):  # fmt: skip
        yield (
            f"an extra field {extra!r} in the list",
            zipped(with_part(PARTS, NUMBER, central=ones, central_extra=extra)),
        )
        if extra != large_field():
            yield f"an extra field {extra!r} before the data", zipped(with_part(PARTS, NUMBER, local_extra=extra))
    for wrong in (0, 1, 2**31, ALL_ONES - 1, ALL_ONES):
        yield f"at {wrong}", zipped(with_part(PARTS, NUMBER, central={"offset": wrong}))
    for wrong in (0, len(WHOLE), 2**63, 2**64 - 1):
        yield (
            f"far away at {wrong}",
            zipped(with_part(PARTS, NUMBER, central={"offset": ALL_ONES}, central_extra=large_field(wrong))),
        )


def refused_headers() -> Iterator[tuple[str, bytes]]:
    for bit in range(16):
        for where in ("central", "local"):
            yield f"flag {bit}, {where}", zipped(with_part(PARTS, NUMBER, **{where: {"flags": 1 << bit}}))
        if bit != 11:
            yield f"flag {bit}", zipped(with_part(PARTS, NUMBER, flags=1 << bit))
    for method in (1, 6, 8, 9, 12, 14, 93, 95, 97, 99, 0xFFFF):
        for changes in ({"central": {"method": method}}, {"local": {"method": method}}, {"method": method}):
            yield f"method {changes}", zipped(with_part(PARTS, NUMBER, **changes))
    packed = zlib.compress(DATA)[2:-4]
    checked = {"checksum": zlib.crc32(DATA), "size": len(DATA)}
    yield (
        "a member that is really compressed",
        zipped(with_part(PARTS, NUMBER, data=packed, method=8, central=checked, local=checked)),
    )
    for value in (0, ALL_ONES, zlib.crc32(DATA) ^ 1):
        for where in ("central", "local"):
            yield f"checksum {value}, {where}", zipped(with_part(PARTS, NUMBER, **{where: {"checksum": value}}))
        both = {"checksum": value}
        yield f"checksum {value}", zipped(with_part(PARTS, NUMBER, central=both, local=both))
    yield "another disk", zipped(with_part(PARTS, NUMBER, central={"disk": 1}))
    for where in ("central", "local"):
        for mark in (b"PK\5\6", b"PK\1\2" if where == "local" else b"PK\3\4", bytes(4)):
            yield f"signature {mark!r}, {where}", zipped(with_part(PARTS, NUMBER, **{where: {"mark": mark}}))
        for name in ("name_length", "extra_length", *(["comment_length"] if where == "central" else [])):
            for value in (0, 1, 12, 14, 500, 0xFFFF):
                if value or name == "name_length":
                    yield f"{name} {value}, {where}", zipped(with_part(PARTS, NUMBER, **{where: {name: value}}))
    zero = {"checksum": 0, "size": 0, "stored": 0}
    sizes = struct.pack("<3L", zlib.crc32(DATA), len(DATA), len(DATA))
    large = struct.pack("<LQQ", zlib.crc32(DATA), len(DATA), len(DATA))
    for after in (sizes, b"PK\7\x08" + sizes, large, b"PK\7\x08" + large):
        yield "sizes after the data", zipped(with_part(PARTS, NUMBER, flags=8, local=zero, after=after))
        yield "sizes after the data, unannounced", zipped(with_part(PARTS, NUMBER, after=after))


def refused_layouts() -> Iterator[tuple[str, bytes]]:
    picture = b"\x89PNG\r\n\x1a\n" + struct.pack(">L", 13) + b"IHDR" + bytes(17)
    for before in (
        b"\0",
        b"#!/bin/sh\nexec rm -rf /\n",
        picture,
        b"%PDF-1.7\n",
        b"\x7fELF" + bytes(60),
        b"MZ" + bytes(62),
    ):
        yield f"after {before[:8]!r}", before + WHOLE
        yield f"after {before[:8]!r}, all offsets right", zipped(PARTS, before=before)
    for between in (b"\0", bytes(4), bytes(16), b"PK\3\4", WHOLE):
        yield f"{between[:8]!r} between members", zipped(with_part(PARTS, NUMBER, before=between))
        yield f"{between[:8]!r} before the list", zipped(PARTS, gap=between)
        yield f"{between[:8]!r} before the list, of which it is a part", zipped(PARTS, extra_entries=between)
    for comment in (b"\0", b"a comment", WHOLE[-22:], WHOLE[:60_000], b"PK\5\6" + bytes(18)):
        yield f"a comment {comment[:9]!r}", zipped(PARTS, comment=comment)
        yield f"{comment[:9]!r} after the end", zipped(PARTS) + comment
        yield f"a comment {comment[:9]!r} of another length", zipped(PARTS, comment=comment, end={"length": 1})
    yield "twice, one after the other", WHOLE + WHOLE
    yield "after another checkpoint", MODELS["moved"] + WHOLE
    yield "a member that is not listed", zipped(PARTS, listed=[i for i in range(len(PARTS)) if i != NUMBER])
    yield "a member listed twice", zipped(PARTS, listed=[*range(len(PARTS)), NUMBER])
    yield "no members", zipped([])
    yield "the end alone", WHOLE[-22:]
    yield "only a header", zipped(PARTS[:1])
    again = Part(NAME, DATA[:-8] + bytes(8))
    yield "a member twice, in two places", zipped([*PARTS, again])
    yield "a member twice, the other first", zipped([again, *PARTS])
    for moved in (-1, 1, 1000):
        yield f"all offsets moved by {moved}", zipped(PARTS, before=bytes(2000), moved=moved)
    # One member inside another, and one that holds the whole archive.
    inner = zipped([PARTS[NUMBER]], listed=[])[:-22]
    outer = Part(b"reservoir.rows.npy", inner)
    yield "a member inside another", _overlapping(outer, len(HEADER.pack(*[b""] + [0] * 10)) + len(outer.name))
    for size in (len(WHOLE), len(WHOLE) - 22, len(WHOLE) // 2):
        changes = {"size": size, "stored": size, "offset": 0, "checksum": zlib.crc32(WHOLE[:size])}
        yield f"a member of {size} bytes from the beginning", zipped(with_part(PARTS, LAST, central=changes))
    for name in ("disk", "first"):
        yield f"end: {name}", zipped(PARTS, end={name: 1})
    for value in (0, 1, len(PARTS) - 1, len(PARTS) + 1, 0xFFFE, 0xFFFF):
        for names in (("here",), ("count",), ("here", "count")):
            yield f"end: {names} {value}", zipped(PARTS, end=dict.fromkeys(names, value))
    for name in ("size", "offset"):
        for value in (0, 1, len(WHOLE), 2**31, ALL_ONES):
            yield f"end: {name} {value}", zipped(PARTS, end={name: value})


def _overlapping(outer: Part, place: int) -> bytes:
    """Write an archive in which one member's data hold another member, which is listed too."""
    parts = [part for part in PARTS if part.name not in (outer.name, NAME)]
    start = sum(HEADER.size + len(part.name) + len(part.data) for part in parts)
    inside = ENTRY.pack(
        b"PK\1\2", 20, 20, 0, 0, 0, 0, zlib.crc32(DATA), len(DATA), len(DATA), len(NAME), 0, 0, 0, 0, 0, start + place
    )
    whole = zipped([*parts, outer], extra_entries=inside + NAME)
    count = len(parts) + 2
    return whole[:-22] + END.pack(b"PK\5\6", 0, 0, count, count, *END.unpack(whole[-22:])[5:])


def refused_large_ends() -> Iterator[tuple[str, bytes]]:
    for name, values in {
        "kind": (b"PK\6\5", bytes(4)), "rest": (0, 43, 45, 2**63), "disk": (1, ALL_ONES), "first": (1,),
        "here": (0, 1, 2**64 - 1), "count": (0, 1, 2**63), "size": (0, 1, 2**16 + 1, 2**63, 2**64 - 1),
        "offset": (0, 1, 2**63, 2**64 - 1), "locator_disk": (1,), "place": (0, 1, 2**63, 2**64 - 1),
        "n_disks": (0, 2, ALL_ONES), "between": (b"\0", bytes(100)),
    }.items():  # fmt: skip
        for value in values:
            for end in ({}, {"here": 0xFFFF, "count": 0xFFFF, "size": ALL_ONES, "offset": ALL_ONES}):
                yield f"large end: {name} {value!r}", zipped(PARTS, large_end={name: value}, end=end)
    ones = {"here": 0xFFFF, "count": 0xFFFF, "size": ALL_ONES, "offset": ALL_ONES}
    yield "no large end", zipped(PARTS, end=ones)
    yield "a large end without its mark", zipped(PARTS, large_end={"mark": bytes(4)}, end=ones)


def refused_formats() -> Iterator[tuple[str, bytes]]:
    yield "nothing", b""
    yield "packed by gzip", gzip.compress(WHOLE)
    file = BytesIO()
    with tarfile.open(fileobj=file, mode="w") as tar:
        info = tarfile.TarInfo("model.npz")
        info.size = len(WHOLE)
        tar.addfile(info, BytesIO(WHOLE))
    yield "in a tar file", file.getvalue()
    yield "in another archive", zipped([Part(b"model.npz", WHOLE)])
    yield "a document that is a zip archive", zipped([Part(b"[Content_Types].xml", b"<Types/>"), *PARTS])
    yield "a Java archive", zipped([Part(b"META-INF/MANIFEST.MF", b"Manifest-Version: 1.0\n"), *PARTS])
    yield "a folder besides", zipped([*PARTS, Part(b"folder/", b"")])
    yield "an old checkpoint's end on a new one", WHOLE[:-22] + MODELS["moved"][-22:]
    file = BytesIO()
    np.savez(file, **unpacked(WHOLE)[1])
    yield "arrays without a header", file.getvalue()


REFUSED = {
    function.__name__: function
    for function in (
        refused_names,
        refused_sizes,
        refused_headers,
        refused_layouts,
        refused_large_ends,
        refused_formats,
    )
}


@pytest.mark.parametrize("kind", REFUSED)
def test_archives_that_could_be_read_in_two_ways_are_refused(kind: str) -> None:
    tally, accepted = Tally(), []
    for name, data in REFUSED[kind]():
        # Some of these happen to say what is true, such as a size of all ones beside the right extra field.
        if data != zipped(PARTS) and tally.try_file(data) in ("same", "another"):
            accepted.append(name)
    tally.report(kind)
    assert accepted == []


# Headers


def with_header(text: bytes, parts: list[Part] = PARTS) -> bytes:
    return zipped(with_part(parts, 0, data=text))


def odd_headers() -> Iterator[tuple[str, bytes]]:
    text = PARTS[0].data
    for mark in (b"\xef\xbb\xbf", b"\xff\xfe", b"\0", b"\x1a", b"//\n", b"/**/", b"[", b"\x0c", b"\xa0", b"()"):
        yield f"{mark!r} before", mark + text
        yield f"{mark!r} behind", text + mark
    yield "twice", text + text
    for encoding in ("utf-16", "utf-32", "cp037"):
        yield encoding, text.decode().encode(encoding)
    for key in (b'"version":3', b'"format":"streamkpca stream"', b'"n_rows":144', b'"extra":{"offset":1}'):
        assert key in text, key
        yield f"{key!r} twice", text.replace(key, key + b"," + key)
        yield f"{key!r} twice, once escaped", text.replace(key, key + b',"\\u00' + key[1:2].hex().encode() + key[2:])
        yield f"{key!r} without quotes", text.replace(key, key.replace(b'"', b""))
        yield f"{key!r} in single quotes", text.replace(key, key.replace(b'"', b"'"))
        yield f"{key!r} and a comma more", text.replace(key, key + b",")
    for number in (
        b"NaN", b"Infinity", b"-Infinity", b"1e400", b"-1e400", b"1" * 400 + b".0", b"9" * 4301, b"9" * 5001, b"01",
        b"-" + b"9" * 100_000, b"1" * 4_000_000, b"1" * 4_000_000 + b".5", b"0." + b"1" * 3_900_000 + b"e400", b"+1",
        b"0x10", b".5", b"5.", b"1e", b"1_0", b"1n", "\u0661".encode(), b"--1", b"- 1", b"1 2",
    ):  # fmt: skip
        yield f"{number[:20]!r}", text.replace(b'{"offset":1}', number)
    for depth in (101, 1_000, 100_000, 2_000_000):
        yield f"lists {depth} deep", text.replace(b'{"offset":1}', b"[" * depth + b"]" * depth)
        objects = b'{"a":' * (depth // 3) + b"1" + b"}" * (depth // 3)
        if depth > 400:
            yield f"objects {depth} deep", text.replace(b'{"offset":1}', objects)
        yield f"{depth} brackets", text.replace(b'{"offset":1}', b"[" * depth)
    for string in (
        b'"\n"',
        b'"\t"',
        b'"\\x41"',
        b'"\\u12"',
        b'"\\ud800\\u"',
        b'"',
        b'"\\"',
        b"'a'",
        b'"\xc3\xa4"',
        b'"\x7f\x80"',
    ):
        yield f"{string!r}", text.replace(b'{"offset":1}', string)
    for value in (
        b"true false",
        b"True",
        b"None",
        b"undefined",
        b"",
        b",",
        b"[1,]",
        b"{}{}",
        b"[1 2]",
        b'{"a"}',
        b"{1:2}",
    ):
        yield f"{value!r}", text.replace(b'{"offset":1}', value)


def test_odd_headers_are_refused() -> None:
    tally, accepted = Tally(), []
    for name, text in odd_headers():
        if tally.try_file(with_header(text)) in ("same", "another"):
            accepted.append(name)
    tally.report("odd headers")
    assert accepted == []


def test_any_json_data_comes_back_as_extra() -> None:
    tally = Tally()
    for extra in (
        [], {}, "", "\ud800", "\udfff\ud800", "\0", "\x1b[31m", "\u2028", "a" * 4_000_000, -0.0, 5e-324,
        1.7976931348623157e308,        10**4299, -(10**4298), 2**64, True, None, [[]] * 10_000,
        {str(i): i for i in range(50_000)}, {"": {"": ""}},
        {"a" * 10**6: 1}, json.loads("[" * 64 + "]" * 64), json.loads('{"a":' * 64 + "0" + "}" * 64),
    ):  # fmt: skip
        data = models_data("fading", extra)
        assert tally.try_file(data, whole=data) == "same"
        loaded = StreamingKernelPCA.from_bytes(data).extra_
        assert (loaded, str(type(loaded))) == (extra, str(type(extra)))
    tally.report("extras")


def models_data(name: str, extra: Any) -> bytes:
    return StreamingKernelPCA.from_bytes(MODELS[name]).to_bytes(extra)


@pytest.mark.parametrize(
    "extra", [json.loads("[" * 100 + "]" * 100), 10**4300, "x" * 2**22, [0] * 2**18], ids=lambda x: type(x)
)
def test_what_could_not_be_read_is_not_written(extra: Any) -> None:
    model = StreamingKernelPCA.from_bytes(MODELS["fading"])
    before = sys.get_int_max_str_digits()
    # Whoever lifts Python's limit must not write what others cannot read.
    sys.set_int_max_str_digits(0)
    try:
        with pytest.raises(ValueError, match="to_bytes: expected extra to be JSON data"):
            model.to_bytes([extra])
    finally:
        sys.set_int_max_str_digits(before)


# Arrays


def odd_preambles(dtype: str, shape: tuple[int, ...]) -> Iterator[bytes]:
    descr, order, size = f"'descr': '{dtype}'", "'fortran_order': False", f"'shape': {shape}"
    n, d = shape
    texts = ["", "{}", "__import__('os')", f"dict({descr})", f"lambda: {{{descr}}}", f"[{descr}]", f"{descr}, {size}"]
    texts += [
        f'{{"descr": "{dtype}", {order}, {size}, }}',
        f"{{{order}, {descr}, {size}, }}",
        f"{{{descr}, {order}, {size}}}",
        f"{{{descr}, {order}, {size}, 'more': 1, }}",
        f"{{{descr}, {descr}, {order}, {size}, }}",
        f"{{{descr}, 'fortran_order': 0, {size}, }}",
        f"{{{descr}, 'fortran_order': True, {size}, }}",
    ]
    for odd in (
        "__import__('os').system('true')", f"({n} + 0, {d})", f"[{n}, {d}]", f"({n}L, {d}L)", f"(True, {d})", "()",
        f"({n}.0, {d})", f"({n}, -{d})", f"({n}, {d}, )", f"({n},{d})", f"({'9' * 400}, {d})", f"(0x{n:x}, {d})",
        f"({n * d},)", f"(1, {n}, {d})", f"({d}, {n})", f"({n}, {d}) or 1", f"({n}, {d}", f"(({n}), {d})", f"{n}, {d}",
    ):  # fmt: skip
        texts.append(f"{{{descr}, {order}, 'shape': {odd}, }}")
    for kind in (
        "|O",
        "O",
        "<f4",
        ">f8",
        "=f8",
        "f8",
        "|f8",
        "<i8",
        "<c16",
        "<M8[s]",
        "|V8",
        "<U2",
        "|S8",
        "<f16",
        "<f2",
        "|b1",
        "float64",
    ):
        texts.append(f"{{'descr': '{kind}', {order}, {size}, }}")
    for kind in ("[('a', '<f8')]", "('<f8', (1,))", "None", "object", "['<f8']", "b'<f8'", "u'<f8'", "'<f8' ''"):
        texts.append(f"{{'descr': {kind}, {order}, {size}, }}")
    right = f"{{{descr}, {order}, {size}, }}"
    texts += [
        right.replace(" ", "\t"),
        right.replace(" ", ""),
        right.replace("'", "\u2019"),
        right + "#",
        right + ";",
        "\\\n" + right,
        right + "\0",
    ]
    texts += [
        right.replace(str(shape[0]), "".join(chr(0x0660 + int(digit)) for digit in str(shape[0])), 1),
        right + "\r",
        right + "\n" + right,
    ]
    for text in texts:
        encoded = text.encode()
        yield b"\x93NUMPY\1\0" + struct.pack("<H", len(encoded) + 1) + encoded + b"\n"
    good = right.encode()
    for version in (b"\0\0", b"\1\1", b"\2\0", b"\3\0", b"\xff\xff"):
        yield b"\x93NUMPY" + version + struct.pack("<H", len(good) + 1) + good + b"\n"
        yield b"\x93NUMPY" + version + struct.pack("<L", len(good) + 1) + good + b"\n"
    for length in (0, 1, len(good), len(good) + 2, len(good) + 1000, 0xFFFF):
        yield b"\x93NUMPY\1\0" + struct.pack("<H", length) + good + b"\n"
    for padding in (
        b" " * 1000,
        b" " * 60_000,
        b"\n" * 100,
        b" \n" * 20,
        b"\t\t\n",
        b"(" * 60_000,
        b"-" * 60_000,
        b"1, " * 20_000,
    ):
        yield b"\x93NUMPY\1\0" + struct.pack("<H", len(good) + len(padding)) + good + padding
    for start in (b"\x93numpy\1\0", b"NUMPY\1\0\0", b"\x80\4\x95", b"", b"\x93NUMPY", b"PK\3\4", b"\x1f\x8b"):
        yield start + struct.pack("<H", len(good) + 1) + good + b"\n"


def test_odd_preambles_of_arrays_are_refused() -> None:
    tally, accepted = Tally(), []
    values = unpacked(WHOLE)[1]["jury.rows"]
    raw = values.astype("<f8").tobytes()
    assert DATA.endswith(raw)
    for preamble in odd_preambles("<f8", values.shape):
        for rest in (raw, raw + bytes(8), raw[8:]) if NIGHTLY else (raw,):
            if tally.try_file(zipped(with_part(PARTS, NUMBER, data=preamble + rest))) in ("same", "another"):
                accepted.append(preamble)
    tally.report("odd preambles")
    assert accepted == []


def test_preambles_may_be_padded_as_others_do() -> None:
    tally = Tally()
    good = DATA[10 : 10 + int.from_bytes(DATA[8:10], "little")].rstrip()
    raw = DATA[10 + int.from_bytes(DATA[8:10], "little") :]
    for padding in (0, 1, 5, 100, 400):
        text = good + b" " * padding + b"\n"
        data = b"\x93NUMPY\1\0" + struct.pack("<H", len(text)) + text + raw
        assert tally.try_file(zipped(with_part(PARTS, NUMBER, data=data))) == "same"
    tally.report("padded preambles")


# Damage of small files, everywhere


@pytest.mark.parametrize("name", ["empty", "waiting", *(["fading", "exact", "moved"] if NIGHTLY else [])])
def test_files_cut_at_every_byte_are_refused(name: str) -> None:
    tally, whole = Tally(), MODELS[name]
    step = 1 if NIGHTLY or len(whole) < 2_000 else 7
    for length in range(0, len(whole), step):
        for data in (whole[:length], whole[length + 1 :]):
            assert tally.try_file(data, whole=whole, watch_memory=False) not in ("same", "another"), length
    tally.report(f"{name}, cut")


@pytest.mark.parametrize("name", ["empty", "waiting", *(["fading", "moved"] if NIGHTLY else [])])
def test_flipped_bits_of_the_structure_are_harmless_or_refused(name: str) -> None:
    tally, whole = Tally(), MODELS[name]
    places, place = set(range(len(whole) - END.size, len(whole))), 0
    for part in parts_of(whole):
        # The header of the member, and the preamble of its array.
        start = place + HEADER.size + len(part.name)
        places |= set(range(place, start)) | (set(range(start, start + 128)) if part.name.endswith(b".npy") else set())
        place = start + len(part.data)
    places |= set(range(place, len(whole)))
    for number, place in enumerate(sorted(places)):
        for bit in range(8) if NIGHTLY else [number % 8]:
            data = bytearray(whole)
            data[place] ^= 1 << bit
            assert tally.try_file(bytes(data), whole=whole, watch_memory=False) != "another", (place, bit)
    tally.report(f"{name}, flipped")


def test_members_of_another_stream_are_found_where_anything_tells() -> None:
    """Two streams with the same parameters and shapes: what nothing else in the file determines cannot be found."""
    tally, accepted = Tally(), []
    small: dict[str, Any] = {"max_atoms": 6, "block_size": 16, "reservoir_size": 10, "refit_every": 32, "atoms": "rows"}
    rows = np.random.default_rng(3).normal(size=(2, 155, 3))
    ours, theirs = (
        StreamingKernelPCA(2, kernel=kernels.RBF(0.3), noise_variance=None, **small)
        .partial_fit(part)
        .refit()
        .to_bytes()
        for part in rows
    )
    parts, others = parts_of(ours), parts_of(theirs)
    assert [(part.name, len(part.data)) for part in parts[1:]] == [(part.name, len(part.data)) for part in others[1:]]
    for number, other in enumerate(others):
        name = other.name.decode().removesuffix(".npy")
        outcome = tally.try_file(zipped(with_part(parts, number, data=other.data)), whole=ours)
        if outcome == "another" and name not in FREE_ARRAYS:
            accepted.append(name)
    for prefix in ("atoms.", "settled.", "recent.", "jury.", "scheduled.", "published.", "pending.", "reservoir."):
        taken = [b if b.name.startswith(prefix.encode()) else a for a, b in zip(parts, others, strict=True)]
        tally.try_file(zipped(taken), whole=ours)
    tally.report("members of another stream")
    # Their header belongs to other moments, and their factor to other atoms.
    assert accepted == []
    assert tally.outcomes["refused"] >= 15


# Parts that belong to an entry of the header, where their names do not begin with it.
BELONGING = {
    "summary": ("atoms.", "jury.", "reservoir.", "settled.", "recent."), "n_settling": ("settling.",),
    "n_pending": ("pending.",), "stream": ("",),
}  # fmt: skip


def test_parts_left_out_with_their_arrays_are_missed() -> None:
    tally, accepted = Tally(), set()
    for name in MODELS if NIGHTLY else ("fading", "waiting"):
        whole = MODELS[name]
        header, arrays = unpacked(whole)
        for place in entries(header):
            gone = BELONGING.get(place[-1], (f"{place[-1]}.",))
            rest = {name: values for name, values in arrays.items() if not name.startswith(gone)}
            for changed_header in (with_entry(header, place, None), without_entry(header, place)):
                if tally.try_file(repacked(changed_header, rest), whole=whole, watch_memory=False) == "another":
                    accepted.add(".".join(place))
    tally.report("parts left out")
    # What a stream may lack; and parameters, which have defaults, or may be None.
    may_be_null = {"stream", "stream.summary.last_drift", "stream.n_settling", "stream.summary.pace.usual_residual"}
    # A file of version 1 has no such entry.
    may_be_null |= {"stream.summary.pace.searched"} | {
        f"stream.{name}.noise_variance" for name in ("published", "scheduled")
    }
    assert {name for name in accepted if not name.startswith(("extra", "parameters."))} <= may_be_null


# Contents that are valid, and ask for much


def changed(whole: bytes, *entries: tuple[str, Any], **arrays: Any) -> bytes:
    header, values = unpacked(whole)
    for place, value in entries:
        header = with_entry(header, tuple(place.split(".")), value)
    return repacked(header, values | arrays)


def in_pairs(terms: list[str]) -> str:
    while len(terms) > 1:
        terms = [f"({'+'.join(terms[i : i + 2])})" for i in range(0, len(terms), 2)]
    return terms[0]


def greedy_kernels() -> Iterator[tuple[str, str]]:
    yield "100,000 terms side by side", "+".join(["RBF(1.0)"] * 100_000)
    yield "100,000 terms in pairs", in_pairs(["RBF()"] * 100_000)
    yield "1,000 terms in pairs", in_pairs(["1.5*RBF(1.0)"] * 1_000)
    yield "300 choices of columns", in_pairs([f"RBF({i + 1}.0).on([{i % 3}])" for i in range(300)])
    yield "300 units", in_pairs([f"RBF(1.0).in_units([{i + 1}.0,1.0,1.0])" for i in range(240)])
    yield "200 exponentials", "RBF(0.3)" + ".exp()" * 199
    yield "200 powers", "(" * 99 + "RBF(0.3)" + ")**2" * 99
    yield "a huge power", f"RBF(0.3)**{2**60}"
    yield "a huge degree", f"Polynomial({2**60}, gamma=1.0)"
    yield "a column of a million digits", f"RBF(0.3).on([{'9' * 900_000}])"
    yield "half a million columns", f"RBF(0.3).on([{','.join(map(str, range(130_000)))}])"
    yield "half a million units", f"RBF(0.3).in_units([{'1,' * 499_000}1])"
    yield "units of units", "RBF(0.3)" + ".in_units([1.0,2.0,4.0])" * 199
    yield "a large matrix in text", f"RBF(0.3).in_units([{','.join(['[' + '1,' * 699 + '1]'] * 700)}])"
    yield "conditions", "1if 1else " * 99_000 + "1"
    yield "signs", "-" * 999_000 + "1"
    yield "brackets", "(" * 499_000 + ")" * 499_000
    yield "attributes", "a" + ".a" * 499_000
    yield "a string", f"RBF('{'a' * 999_000}')"
    yield "a name", "a" * 999_000
    yield "digits", f"RBF({'9' * 999_000})"
    yield "letters that nobody has", "\U0001d5a0\ufdfa" * 400_000
    yield "tiny", "1e-300 * RBF(0.3)"
    yield "vast", "1e300 * RBF(0.3)"
    yield "narrow", "RBF(1.7e308)"
    yield "wide", "RBF(5e-324)"


def greedy() -> Iterator[tuple[str, bytes]]:
    young, rows, moved = MODELS["waiting"], MODELS["fading"], MODELS["moved"]
    for number, (name, text) in enumerate(greedy_kernels()):
        places = [
            ("a kernel not settled yet", young, "stream.kernel", text),
            ("a parameter", MODELS["empty"], "parameters.kernel", {"expression": text}),
            ("atoms", rows, "stream.summary.kernel", text),
            ("answers", moved, "stream.scheduled.kernel", text),
        ]
        for what, whole, place, value in places if NIGHTLY else [places[number % len(places)]]:
            yield f"{what}: {name}", changed(whole, (place, value))
    for size in (2**40, 2**59, 2**60) if NIGHTLY else (2**60,):
        for place in ("block_size", "reservoir_size"):
            both = [(f"parameters.{place}", size), (f"stream.{place}", size)]
            yield f"{place} {size}", changed(young, *both)
            yield f"{place} {size} in an old stream", changed(rows, *both)
        for place in ("n_components", "max_atoms", "refit_every", "n_active", "half_life", "random_state"):
            yield f"{place} {size}", changed(rows, (f"parameters.{place}", size))
    for d in (2**31, 2**40, 2**40 + 1, 2**59, 2**60):
        for kind in ("<f4", "<f8"):
            none = as_npy(np.empty((0, 1), dtype=kind), f"(0, {d})")
            name = {"<f4": "float32", "<f8": "float64"}[kind]
            yield f"{d} features of no row, {name}", changed(
                young, ("stream.n_features", d), ("stream.n_pending", 0), ("stream.dtype", name),
                ("parameters.dtype", name),
                **{"pending.rows": none, "settling.rows": none, "pending.weights": np.empty(0)},
            )  # fmt: skip
    for names in (["x" * 1_000_000] * 3, ["\ud800", "\x1b[2J", "\0"], ["", "", ""], ["\u202e" * 1000, "a\nb", " "]):
        yield f"names such as {names[0][:3]!r}", changed(young, ("stream.feature_names", names))
        yield f"names such as {names[0][:3]!r} of an old stream", changed(rows, ("stream.feature_names", names))
    for place in ("n_pending", "n_features", "summary.n_atoms", "summary.jury.count", "scheduled.n_m", "scheduled.n_k"):
        for value in (2**31, 2**32, 2**59, 2**60) if NIGHTLY else (2**32, 2**60):
            yield f"{place} {value}", changed(rows, (f"stream.{place}", value))
    huge = 2**60
    shapes = {"atoms.factor": f"({huge}, {huge})", "atoms.rows": f"({huge}, 3)", "settled.second": f"({huge}, {huge})"}
    arrays = unpacked(rows)[1]
    yield (
        "shapes whose products overflow",
        changed(
            rows,
            ("stream.summary.n_atoms", huge),
            **{name: as_npy(arrays[name], shape) for name, shape in shapes.items()},
        ),
    )
    yield (
        "shapes whose products overflow to nothing",
        changed(
            rows, ("stream.summary.n_atoms", 2**32), **{"atoms.factor": as_npy(np.empty(0), f"({2**32}, {2**32})")}
        ),
    )
    for value in (10**4299, 2**63, -1, 1e308, 10**400, 2**64, 0.1 + 2**60)[: None if NIGHTLY else 4]:
        for place in (
            "parameters.random_state",
            "stream.seed",
            "parameters.half_life",
            "parameters.tolerance",
            "stream.n_rejected",
        ):
            yield f"{place} {value:.3g}" if abs(value) < 1e300 else f"{place} vast", changed(rows, (place, value))
    yield (
        "matrices that no kernel needs",
        zipped(with_part(PARTS, 0, data=json.dumps({**unpacked(rows)[0], "matrices": ["x" * 4_000_000]}).encode())),
    )
    yield "a parameter's long name", changed(rows, ("parameters." + "x" * 1_000_000, 1))
    yield "a parameter's name that a terminal obeys", changed(rows, ("parameters.\x1b[2J\x1b]0;title\x07", 1))
    yield "a member's long name", zipped([*PARTS, Part(b"x" * 60_000, b"")])
    for version in (1, 2):
        yield f"version {version}", changed(rows, ("version", version))


def test_contents_that_ask_for_much_are_refused_or_harmless() -> None:
    """Memory and time stay bounded; limits are those of the file and of a few MB, whatever its numbers say."""
    tally = Tally()
    # Compiled loops and modules that are loaded for the first time must not count.
    StreamingKernelPCA.from_bytes(MODELS["waiting"]).partial_fit(np.ones((70, 3)))
    for name, data in greedy():
        before = tally.most
        outcome = tally.try_file(data, whole=b"")
        assert tally.most <= max(before, FEW_MB), name
        assert outcome != "same"
    tally.report("greedy contents")


def test_nested_matrices_of_units_do_not_multiply_the_work() -> None:
    tally, c = Tally(), 200
    turned = np.linalg.qr(np.random.default_rng(0).normal(size=(c, c)))[0]
    model = StreamingKernelPCA(
        2, kernel=kernels.RBF(0.1 / c).in_units(turned), max_atoms=3, block_size=8, reservoir_size=3
    )
    header, arrays = unpacked(model.partial_fit(np.random.default_rng(1).normal(size=(20, c))).to_bytes())
    text = header["stream"]["kernel"]
    units = text[text.index(".in_units") :]
    for changed_text, is_read in (
        (text, True),
        (text + units, True),
        (text + 2 * units, False),
        (text + 198 * units, False),
        (in_pairs([f"(1.5 * {text})"] * 64), True),
        (in_pairs([f"(1.5 * {text})"] * 65), False),
    ):
        data = repacked(json.dumps(header).replace(json.dumps(text), json.dumps(changed_text)).encode(), arrays)
        outcome = tally.try_file(data, whole=b"")
        assert ("large matrices of units" in outcome) != is_read, outcome
    tally.report("nested matrices")


# Every way in


class Watched:
    """Monitors and models of a crafted file, whichever way they are read."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "plant-00000002.npz"
        self.folder = folder

    def ways(self) -> dict[str, Callable[[bytes], Any]]:
        return {
            "StreamingKernelPCA.from_bytes": StreamingKernelPCA.from_bytes,
            "from_bytes with a kernel": lambda data: StreamingKernelPCA.from_bytes(data, kernel=kernels.RBF(0.3)),
            "load": lambda data: load(self._written(data)),
            "load with a kernel": lambda data: StreamingKernelPCA.load(self._written(data), kernel=kernels.RBF(0.3)),
            "Monitor.from_bytes": Monitor.from_bytes,
            "Monitor.load": lambda data: Monitor.load(self._written(data)),
        }

    def _written(self, data: bytes) -> Path:
        self.path.write_bytes(data)
        return self.path


def some_refused() -> list[tuple[str, bytes]]:
    """Return some refused files of every kind."""
    found = [(name, data) for make in REFUSED.values() for name, data in make() if data != zipped(PARTS)]
    found += [(name, with_header(text)) for name, text in odd_headers()]
    return found[:: 1 if NIGHTLY else 41]


def test_every_way_of_reading_refuses_the_same(tmp_path: Path) -> None:
    counts: Counter[str] = Counter()
    ways = Watched(tmp_path).ways()
    for name, data in some_refused():
        for way, read in ways.items():
            with pytest.raises(CheckpointError) as raised:
                read(data)
            text = str(raised.value).replace(str(tmp_path), "")
            assert len(text) < LONGEST_MESSAGE, name
            assert text.isprintable(), name
            counts[way] += 1
        assert os.listdir(tmp_path) == ["plant-00000002.npz"]
    print(", ".join(f"{way}: {count} refused" for way, count in counts.items()))


def test_damaged_generations_are_skipped_with_a_warning(tmp_path: Path) -> None:
    checkpoints = Checkpointer(tmp_path / "plant.npz", keep=5)
    checkpoints.save(StreamingKernelPCA.from_bytes(WHOLE), extra="whole")
    path, n_skipped = tmp_path / "plant-00000002.npz", 0
    for name, data in some_refused():
        path.write_bytes(data)
        with pytest.warns(CheckpointWarning, match="; an older generation is tried$") as caught:
            model = checkpoints.latest()
        assert len(caught) == 1
        assert model is not None
        assert model.extra_ == "whole", name
        n_skipped += 1
    path.unlink()
    (tmp_path / "plant-00000003.npz").mkdir()
    (tmp_path / "plant-00000004.npz").symlink_to(tmp_path / "nowhere")
    (tmp_path / "plant-00000005.npz").symlink_to(tmp_path / "plant-00000005.npz")
    (tmp_path / "plant-00000006.npz").symlink_to("/dev/null")
    with pytest.warns(CheckpointWarning) as caught:
        model = checkpoints.latest()
    assert (len(caught), model and model.extra_) == (4, "whole")
    print(f"{n_skipped + 4} generations were skipped")


def test_kernels_of_the_caller_meet_only_finite_rows_of_the_file() -> None:
    """The caller's function is code of the caller: it is called with rows of the file, which are finite."""
    seen: list[bool] = []

    def product(X: Any, Y: Any) -> Any:
        seen.append(bool(np.isfinite(X).all() and np.isfinite(Y).all()))
        return X @ Y.T

    kernel = kernels.Custom(product)
    small: dict[str, Any] = {"max_atoms": 6, "block_size": 16, "reservoir_size": 10}
    rows = np.random.default_rng(0).normal(size=(80, 3))
    header, arrays = unpacked(StreamingKernelPCA(2, kernel=kernel, **small).partial_fit(rows).refit().to_bytes())
    assert header["stream"]["kernel"] is None
    tally: Counter[str] = Counter()
    for name, values in arrays.items():
        for number in (np.nan, np.inf, 1e300, 0.0, -1.0):
            if values.size and values.dtype.kind == "f":
                damaged = values.copy()
                damaged.flat[0] = number
                try:
                    StreamingKernelPCA.from_bytes(repacked(header, {**arrays, name: damaged}), kernel=kernel)
                    tally["loaded"] += 1
                except CheckpointError:
                    tally["refused"] += 1
    print(f"files for a kernel of the caller: {dict(tally)}")
    assert all(seen)
    assert tally["refused"] > 50
    with pytest.raises(CheckpointError, match="functions of the caller"):
        StreamingKernelPCA.from_bytes(repacked(header, arrays))


def test_models_of_forged_files_are_merged_or_refused() -> None:
    honest = StreamingKernelPCA.from_bytes(MODELS["fitted"])
    header, arrays = unpacked(MODELS["fitted"])
    tally: Counter[str] = Counter()
    for place, values in {
        "stream.n_rejected": [0, 200], "stream.seed": [1, 2**200], "stream.feature_names": [["a", "b", "c"], [""] * 3],
        "stream.summary.n_rows": [200, 2**59, 2**60], "stream.summary.settled.largest_energy": [1e3, 1e300],
        "stream.summary.settled.total_squared_weight": [1e4], "stream.summary.pace.wait": [0, 1024],
        "stream.summary.losses.rounding": [1e300], "stream.summary.losses.stale_length": [1e149, 1e150],
        "stream.summary.trend.level": [1e150], "stream.summary.jury.size": [2**60], "parameters.max_atoms": [1, 2**60],
        "parameters.tolerance": [0.999], "parameters.n_components": [1, 2**59],
    }.items():  # fmt: skip
        for value in values:
            try:
                forged = StreamingKernelPCA.from_bytes(
                    repacked(with_entry(header, tuple(place.split(".")), value), arrays)
                )
            except CheckpointError:
                tally["refused on loading"] += 1
                continue
            for one, other in ((honest, forged), (forged, honest)):
                try:
                    whole = merge(one, other)
                    whole.partial_fit(np.zeros((40, 3)))
                    answers = whole.novelty(PROBE)
                    again = StreamingKernelPCA.from_bytes(whole.to_bytes())
                except (ValueError, MemoryError) as error:
                    # Such as counts beyond the largest, or memory for 2^59 components.
                    tally[f"refused by {type(error).__name__}"] += 1
                else:
                    assert np.isfinite(answers).all()
                    assert again.to_bytes() == whole.to_bytes()
                    tally["merged"] += 1
    print(f"forged models: {dict(tally)}")
    assert tally["merged"] > 10


WATCH = """
import sys
from pathlib import Path
from streamkpca import CheckpointError, StreamingKernelPCA
from streamkpca.monitoring import Monitor

def read(data):
    for kind in (StreamingKernelPCA, Monitor):
        try:
            kind.from_bytes(data)
        except CheckpointError:
            pass

files = [path.read_bytes() for path in sorted(Path(sys.argv[1]).iterdir())]
# What is loaded for the first time is no matter of the file.
for data in files:
    read(data)
seen, watching = {}, False
def watch(event, arguments):
    if watching:
        seen[event] = seen.get(event, 0) + 1
sys.addaudithook(watch)
watching = True
for data in files:
    read(data)
watching = False
print(len(files), sorted(seen))
"""


def test_nothing_is_written_run_or_unpickled(tmp_path: Path) -> None:
    """Python's audit events of all loads: texts of kernels are parsed (compile), and nothing is opened or run."""
    folder = tmp_path / "files"
    folder.mkdir()
    files = [
        *some_refused(),
        *harmless(),
        *((name, data) for name, data in greedy() if NIGHTLY or len(data) < 20_000),
    ]
    files += [(name, data) for name, data in MODELS.items()]
    for number, (_, data) in enumerate(files):
        (folder / f"{number:05d}").write_bytes(data)
    done = subprocess.run(
        [sys.executable, "-c", WATCH, str(folder)],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    count, _, events = done.stdout.strip().partition(" ")
    assert int(count) == len(files)
    assert set(json.loads(events.replace("'", '"'))) <= {
        "compile",
        "builtins.id",
        "object.__getattr__",
        "sys._getframe",
    }
    assert os.listdir(tmp_path) == ["files"]
    assert done.stderr == ""
    print(f"{count} files: audit events {events}")
