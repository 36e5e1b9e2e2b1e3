"""Files that are well formed on the outside and make no sense inside, for each format that tables are read from."""

import bz2
import gzip
import io
import itertools
import json
import lzma
import struct
import warnings
import zipfile
import zlib
from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import ipc, parquet

Generator = np.random.Generator

# Numbers that are claimed of sizes: none, one too many, as many as a small field holds, more than any memory.
CLAIMS = (0, 1, -1, 255, 2**16, 2**31 - 1, 2**31, 2**40, 2**62, 2**63 - 1)


# npy and npz


def npy(
    shape: Any = (3, 2),
    descr: Any = "<f8",
    order: Any = False,
    *,
    version: tuple[int, int] = (1, 0),
    data: bytes = np.arange(6.0).tobytes(),
    text: bytes | None = None,
    claimed: int | None = None,
) -> bytes:
    """Write an npy file whose header says what it is told to."""
    if text is None:
        text = f"{{'descr': {descr!r}, 'fortran_order': {order!r}, 'shape': {shape!r}, }}".encode()
        text = text.ljust(117) + b"\n"
    length = len(text) if claimed is None else claimed
    packed = struct.pack("<H" if version[0] == 1 else "<I", length & (0xFFFF if version[0] == 1 else 0xFFFFFFFF))
    return b"\x93NUMPY" + bytes(version) + packed + text + data


SHAPES = (
    (3, 2), (-3, 2), (3, -2), (-3, -2), (0, 2), (3, 0), (0, 0), (), (6,), (3, 2, 1), (1, 6), (6, 1), (True, 2),
    (3.0, 2),
    [3, 2], "3,2", None, ((3, 2),), (3, None), (2**20, 2), (2, 2**20), (1, 2**40), (2**40, 1), (2**62, 2**62),
    (1, 2**63),
    (2**63, 1), (-(2**63), 2), (10**30, 1), (1, 10**30), (3,) * 40,
)  # fmt: skip
DESCRIPTIONS = (
    "<f8", ">f8", "=f8", "<f4", "<f2", "<f16", "|b1", "|i1", "<i8", ">u2", "<u8", "|O", "O", "<U3", "|S5", "<M8[s]",
    "<M8",
    "<m8[D]", "<c16", "|V8", "|V0", "<U0", "<U1000000000", "|V2147483647", "f", "d", "", "x", "<f9", "<f8,<f8", "3f8",
    "(2,)f8", None, 3, [], {}, [("a", "<f8")], [("a", "<f8"), ("a", "<f8")], [("", "|V0")], [("a", "<f8", (2,))],
    [(("t", "a"), "<f8")], ("<f8", (2,)), ("<f8", {}), "float", "int", "object", "bool", "__import__('os')", b"<f8",
)  # fmt: skip
ORDERS = (False, True, None, 0, 1, 2, "C", "F", [])
VERSIONS = ((1, 0), (2, 0), (3, 0), (0, 0), (1, 1), (4, 0), (255, 255))
TEXTS = (
    b"", b"\n", b" " * 100, b"{}", b"[]", b"1", b"None", b"{'shape': (3, 2)}", b"not python", b"{'descr': '<f8'",
    b"{'descr': '<f8', 'fortran_order': False, 'shape': (3, 2), 'more': 1}\n",
    b"{'descr': '<f8', 'descr': '<i4', 'fortran_order': False, 'shape': (3, 2)}\n",
    b"{1: 2, 3: 4, 5: 6}", b"{'descr': '<f8', 'fortran_order': False, 'shape': (3L, 2L), }\n",
    b"{'descr': '<f8', 'fortran_order': False, 'shape': (3, 2), } # comment\n",
    b"__import__('os').system('true')", b"{'descr': __import__('os'), 'fortran_order': False, 'shape': (3, 2)}",
    b"(" * 500, b"(" * 5000, b"-" * 5000 + b"1", b"{'a': " * 300, b"\xff\xfe\x00", "{'descr': '<f8\u00e9'}".encode(),
    b"{'descr': '<f8', 'fortran_order': False, 'shape': (" + b"9" * 5000 + b", 2)}\n", b"'" * 99, b"'''", b"\x00" * 64,
    b"{'descr': '<f8', 'fortran_order': False, 'shape': (3, 2)}" + b" " * 20_000 + b"\n",
)  # fmt: skip
LENGTHS = (0, 1, 8, 47, 48, 49, 4096)


def npy_files() -> Iterator[tuple[str, bytes]]:
    """Yield npy files with headers of every kind."""
    for shape, order, length in itertools.product(SHAPES, (False, True), LENGTHS):
        yield f"shape {shape!r}, order {order}, {length} bytes", npy(shape, order=order, data=bytes(length))
    for descr, order, version in itertools.product(DESCRIPTIONS, (False, True), VERSIONS[:3]):
        yield f"type {descr!r}, order {order}, {version}", npy(descr=descr, order=order, version=version)
    for descr, shape in itertools.product(DESCRIPTIONS, ((2, 2), (0, 2), (1, 2**40))):
        yield f"type {descr!r}, shape {shape}", npy(shape, descr, data=b"\xff" * 64)
    for order, version in itertools.product(ORDERS, VERSIONS):
        yield f"order {order!r}, {version}", npy(order=order, version=version)
    for text, version in itertools.product(TEXTS, VERSIONS):
        yield f"header {text[:60]!r}, {version}", npy(text=text, version=version)
    for claimed, version in itertools.product(CLAIMS, VERSIONS[:3]):
        yield f"header of {claimed} bytes, {version}", npy(claimed=claimed, version=version)
    for text in (b"1e400", b"nan", b"-inf"):
        yield (
            f"long doubles of {text!r}",
            npy((1, 2), "<f16", data=np.array([text.decode()] * 2, dtype=np.longdouble).tobytes()),
        )
    for end in range(0, 130, 3):
        yield f"cut after {end}", npy()[:end]


def zipped(*members: tuple[str, bytes], compression: int = zipfile.ZIP_STORED, comment: bytes = b"") -> bytes:
    """Write a zip archive of members, which may have the same names."""
    buffer = io.BytesIO()
    with warnings.catch_warnings(), zipfile.ZipFile(buffer, "w", compression) as archive:
        warnings.simplefilter("ignore")
        for name, data in members:
            info = zipfile.ZipInfo(name)
            info.compress_type = compression
            archive.writestr(info, data)
        archive.comment = comment
    return buffer.getvalue()


def _patched(data: bytes, at: int, form: str, value: int) -> bytes:
    """Overwrite a number at a byte."""
    size = struct.calcsize(form)
    return data[:at] + (value % 2 ** (8 * size)).to_bytes(size, "little") + data[at + size :]


def npz_files(n_bits: int = 24) -> Iterator[tuple[str, bytes]]:
    """Yield archives of arrays with members of every kind, and some of 2^n_bits zeros."""
    for what, data in npy_files():
        yield f"npz, {what}", zipped(("a.npy", data))
    for name in (
        "../a.npy",
        "/a.npy",
        "a/b.npy",
        ".npy",
        "a.NPY",
        "a.npy/",
        "a\n.npy",
        "\u00e9.npy",
        "--drop.npy",
        "a" * 60000,
    ):
        yield f"member {name[:20]!r}", zipped((name, npy()))
    yield "no member", zipped()
    yield "no array", zipped(("a.txt", b"1,2\n"))
    yield "an array twice", zipped(("a.npy", npy()), ("a.npy", npy((1, 6))))
    yield "two tables", zipped(("a.npy", npy()), ("b.npy", npy()))
    yield "labels beside it", zipped(("a.npy", npy()), ("t.npy", npy((3,), data=bytes(24))))
    yield "too few labels", zipped(("a.npy", npy()), ("t.npy", npy((2,), data=bytes(16))))
    yield "labels of objects", zipped(("a.npy", npy()), ("t.npy", npy((3,), "|O", data=b"\x80\x04K\x01.")))
    yield "labels of dates", zipped(("a.npy", npy()), ("t.npy", npy((3,), "<M8[D]", data=b"\xff" * 24)))
    yield "labels in the other order", zipped(("a.npy", npy()), ("t.npy", npy((3, 1), order=True, data=bytes(24))))
    yield "labels cut short", zipped(("a.npy", npy()), ("t.npy", npy((3,), data=bytes(23))))
    yield "labels too long", zipped(("a.npy", npy()), ("t.npy", npy((3,), data=bytes(99))))
    for member in (
        "xl/workbook.xml",
        "word/document.xml",
        "mimetype",
        "META-INF/MANIFEST.MF",
        "header.json",
        "data.pkl",
    ):
        yield f"an archive with {member}", zipped((member, b"{}"), ("[Content_Types].xml", b"<x/>"))
    yield "thousands of arrays", zipped(*((f"{number}.npy", npy()) for number in range(2**n_bits // 8192)))
    yield "a comment", zipped(("a.npy", npy()), comment=b"PK\x05\x06" * 100)
    yield "bytes before it", b"PK\x03\x04" + bytes(100) + zipped(("a.npy", npy()))
    yield "bytes after it", zipped(("a.npy", npy())) + bytes(100)
    for kind in (zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA):
        good = zipped(("a.npy", npy()), compression=kind)
        yield f"compression {kind}", good
        yield f"compression {kind}, damaged", good[:50] + b"\xff\xff" + good[52:]
        yield (
            f"compression {kind}, rows of zeros",
            zipped(("a.npy", npy((2**n_bits // 16, 2), data=bytes(2**n_bits))), compression=kind),
        )
    yield (
        "a bomb",
        zipped(("a.npy", npy((2**n_bits // 16, 2), data=bytes(2**n_bits))), compression=zipfile.ZIP_DEFLATED),
    )
    yield "a bomb behind the header", zipped(("a.npy", npy(data=bytes(2**n_bits))), compression=zipfile.ZIP_DEFLATED)
    good = zipped(("a.npy", npy()))
    local, central, end = 0, good.index(b"PK\x01\x02"), good.index(b"PK\x05\x06")
    # Version, flags, method, checksum, sizes, lengths of names: the fields of both lists and of the end.
    for start, fields in (
        (local, {4: "<H", 6: "<H", 8: "<H", 14: "<I", 18: "<I", 22: "<I", 26: "<H", 28: "<H"}),
        (central, {6: "<H", 8: "<H", 10: "<H", 16: "<I", 20: "<I", 24: "<I", 28: "<H", 30: "<H", 32: "<H", 42: "<I"}),
        (end, {4: "<H", 6: "<H", 8: "<H", 10: "<H", 12: "<I", 16: "<I", 20: "<H"}),
    ):  # fmt: skip
        for (at, form), value in itertools.product(fields.items(), (*CLAIMS[:7], 8, 9, 12, 14, 97, 99)):
            yield f"byte {start + at} is {value}", _patched(good, start + at, form, value)
    for cut in range(0, len(good), 11):
        yield f"npz cut after {cut}", good[:cut]


# Parquet and Arrow


def columns() -> Iterator[tuple[str, pa.Array]]:
    """Yield a column of three rows of every type of Arrow."""
    numbers = [1, None, 3]
    for kind in ("int8", "int16", "int32", "int64", "uint8", "uint64", "float16", "float32", "float64", "bool"):
        values: Any = np.array([1, 2, 3], dtype=np.float16) if kind == "float16" else [1, 0, 1]
        yield kind, pa.array(values).cast(getattr(pa, "bool_" if kind == "bool" else kind)())
    yield "numbers with gaps", pa.array(numbers, pa.int64())
    yield "NaN", pa.array([1.0, float("nan"), float("inf")])
    yield "large integers", pa.array([2**64 - 1, 2**63, 0], pa.uint64())
    yield "nothing", pa.nulls(3)
    yield "decimals", pa.array([Decimal("1.5"), None, Decimal("-" + "9" * 18)], pa.decimal128(38, 2))
    yield "wide decimals", pa.array([Decimal("1.5"), None, Decimal("9" * 60)], pa.decimal256(76, 4))
    for name, made in {
        "date32": pa.date32(), "date64": pa.date64(), "time32": pa.time32("ms"), "time64": pa.time64("ns"),
        "timestamps": pa.timestamp("ns"), "zoned": pa.timestamp("s", "Europe/Berlin"),
        "odd zone": pa.timestamp("us", "Mars/X"),
        "durations": pa.duration("ns"),
    }.items():  # fmt: skip
        yield name, pa.array([0, None, 86_400_000], made if name != "date32" else pa.int32()).cast(made)
    yield "dates of year 9 million", pa.array([2**31 - 1, -(2**31), None], pa.int32()).cast(pa.date32())
    yield "timestamps out of range", pa.array([2**63 - 1, -(2**63), 0], pa.int64()).cast(pa.timestamp("s"))
    yield "intervals", pa.array([(1, 2, 3), None, (0, 0, 0)], pa.month_day_nano_interval())
    for text in (pa.string(), pa.large_string(), pa.string_view()):
        yield str(text), pa.array(["1", "", None], text)
    for binary in (pa.binary(), pa.large_binary(), pa.binary_view(), pa.binary(2)):
        yield str(binary), pa.array([b"\xff\xfe", None, b"ab"], binary)
    yield "lists", pa.array([[1.0], [], None])
    yield "large lists", pa.array([[1.0], [], None], pa.large_list(pa.float64()))
    yield "list views", pa.array([[1.0], [], None], pa.list_view(pa.float64()))
    yield "lists of two", pa.array([[1.0, 2.0], [3.0, 4.0], None], pa.list_(pa.float64(), 2))
    yield "structs", pa.array([{"x": 1.0}, {"x": None}, None])
    yield "structs without fields", pa.array([{}, {}, None], pa.struct([]))
    yield "maps", pa.array([[("a", 1.0)], [], None], pa.map_(pa.string(), pa.float64()))
    yield (
        "deep lists",
        pa.array([[[[[[[1.0]]]]]], None, []], pa.list_(pa.list_(pa.list_(pa.list_(pa.list_(pa.list_(pa.float64()))))))),
    )
    for values in ([1.0, 2.0], ["a", "b"], [None, 1.0]):
        yield (
            f"dictionary of {values}",
            pa.DictionaryArray.from_arrays(pa.array([0, None, 1], pa.int8()), pa.array(values)),
        )
    yield "dictionary of lists", pa.DictionaryArray.from_arrays(pa.array([0, 0, None], pa.int8()), pa.array([[1.0]]))
    yield "empty dictionary", pa.DictionaryArray.from_arrays(pa.nulls(3, pa.int8()), pa.array([], pa.float64()))
    yield (
        "dictionary out of range",
        pa.DictionaryArray.from_arrays(pa.array([0, 9, -9], pa.int8()), pa.array([1.0]), safe=False),
    )
    yield "runs", pa.RunEndEncodedArray.from_arrays(pa.array([2, 3], pa.int32()), pa.array([1.0, None]))
    yield "runs of other ends", pa.RunEndEncodedArray.from_arrays(pa.array([1, 3], pa.int16()), pa.array(["a", "b"]))
    yield (
        "sparse union",
        pa.UnionArray.from_sparse(pa.array([0, 1, 0], pa.int8()), [pa.array([1.0] * 3), pa.array([2] * 3)]),
    )
    yield (
        "dense union",
        pa.UnionArray.from_dense(
            pa.array([0, 1, 0], pa.int8()), pa.array([0, 0, 1], pa.int32()), [pa.array([1.0, 2.0]), pa.array([2])]
        ),
    )
    yield "uuids", pa.array([b"0123456789abcdef"] * 3, pa.binary(16)).cast(pa.uuid())
    yield "tensors", pa.FixedShapeTensorArray.from_numpy_ndarray(np.arange(12.0).reshape(3, 2, 2))
    yield "opaque", pa.ExtensionArray.from_storage(pa.opaque(pa.float64(), "odd", "vendor"), pa.array([1.0, 2.0, 3.0]))
    yield "flags", pa.ExtensionArray.from_storage(pa.bool8(), pa.array([1, 0, None], pa.int8()))


NAMES = ("", " ", "a", "0", "-1", "a,b", "a\nb", "a.b", "a\x00b", "\u202e", "\U0001f600" * 50, "x" * 100_000, "--drop")


def _tables() -> Iterator[tuple[str, pa.Table]]:
    x = pa.array([1.0, 2.0, 3.0])
    for name, column in columns():
        yield name, pa.table({"x": x, "y": column})
        yield f"{name} alone", pa.table({"y": column})
        yield f"{name}, no rows", pa.table({"x": x, "y": column}).slice(0, 0)
    for name in NAMES:
        yield f"column {name[:20]!r}", pa.table({name: x, "y": x})
    yield "no columns", pa.table({})
    yield "rows without columns", pa.table({"x": x}).select([])
    yield "one name", pa.Table.from_arrays([x, x, x], ["a", "a", "b"])
    yield "empty chunks", pa.table({"x": pa.chunked_array([[], [1.0], [], [2.0]], pa.float64())})
    yield "two thousand columns", pa.table({f"{j}": x for j in range(2000)})
    for metadata in (
        {"pandas": "not json"}, {"pandas": '{"index_columns": [{}], "columns": 7}'}, {"": ""}, {"a": "x" * 2**20},
        {"ARROW:schema": "AAAA"}, {"ARROW:extension:name": "arrow.uuid"}, {b"\xff": b"\xfe"},
    ):  # fmt: skip
        yield f"metadata {str(metadata)[:40]}", pa.table({"x": x}).replace_schema_metadata(metadata)
    field = pa.field(
        "x", pa.float64(), metadata={"ARROW:extension:name": "arrow.uuid", "ARROW:extension:metadata": "{"}
    )
    yield "a false extension", pa.Table.from_arrays([x], schema=pa.schema([field]))
    yield (
        "not null but null",
        pa.Table.from_arrays(
            [pa.array([1.0, None, 3.0])], schema=pa.schema([pa.field("x", pa.float64(), nullable=False)])
        ),
    )


def _written(table: pa.Table, new: Callable[..., Any], **options: Any) -> bytes:
    sink = io.BytesIO()
    with new(sink, table.schema, **options) as writer:
        writer.write_table(table)
    return sink.getvalue()


def _in_parquet(table: pa.Table, **options: Any) -> bytes:
    sink = io.BytesIO()
    parquet.write_table(table, sink, **options)
    return sink.getvalue()


def _changed(data: bytes, begin: int, end: int, rng: Generator, n: int) -> Iterator[tuple[str, bytes]]:
    """Change numbers in a part of a file that holds its structure, not its rows."""
    for _ in range(n):
        at, form = int(rng.integers(begin, max(end - 8, begin + 1))), ("<B", "<H", "<I", "<Q")[int(rng.integers(4))]
        value = int(rng.choice([*CLAIMS[:9], 2, 3, 7, 127, 128]))
        yield f"{form} at {at} is {value}", _patched(data, at, form, value)


def parquet_files(n_changes: int) -> Iterator[tuple[str, bytes]]:
    """Yield Parquet files with schemas of every type, and with damaged footers."""
    for name, table in _tables():
        try:
            data = _in_parquet(table)
        except (pa.ArrowException, OSError):
            # A type that Parquet lacks.
            continue
        yield f"Parquet, {name}", data
    x = pa.array(np.arange(30.0))
    table = pa.table({"x": x, "y": pa.array([i % 3 for i in range(30)])})
    made = {
        "row groups of 1": _in_parquet(table, row_group_size=1),
        "no compression": _in_parquet(table, compression="none"),
        "old pages": _in_parquet(table, data_page_version="1.0", use_dictionary=False, version="1.0"),
        "new pages": _in_parquet(table, data_page_version="2.0", compression="gzip"),
        "zstd": _in_parquet(table, compression="zstd", write_page_index=True, store_schema=False),
        "split": _in_parquet(table.select(["x"]), use_dictionary=False, column_encoding="BYTE_STREAM_SPLIT"),
    }
    rng = np.random.default_rng(31)
    for name, data in made.items():
        yield name, data
        footer = len(data) - 8 - struct.unpack("<I", data[-8:-4])[0]
        for change, changed in _changed(data, footer, len(data) - 8, rng, n_changes):
            yield f"Parquet, {name}, footer, {change}", changed
        for change, changed in _changed(data, 4, min(footer, 80), rng, n_changes // 3):
            yield f"Parquet, {name}, pages, {change}", changed
        for claimed in CLAIMS:
            yield f"Parquet, {name}, a footer of {claimed} bytes", _patched(data, len(data) - 8, "<I", claimed)
        yield f"Parquet, {name}, another end", data[:-4] + b"PARE"
        yield f"Parquet, {name}, only its end", b"PAR1" + data[footer:]
        for cut in range(4, len(data), max(1, len(data) // 12)):
            yield f"Parquet, {name}, cut after {cut}", data[:cut]
    yield "only marks", b"PAR1PAR1"
    yield "only a mark", b"PAR1"
    yield "marks and zeros", b"PAR1" + bytes(100) + b"PAR1"


def arrow_files(n_changes: int) -> Iterator[tuple[str, bytes]]:
    """Yield Arrow files and streams with schemas of every type, and with damaged messages."""
    made = {"file": ipc.new_file, "stream": ipc.new_stream}
    for (name, table), (form, new) in itertools.product(list(_tables()), made.items()):
        yield f"Arrow {form}, {name}", _written(table, new)
    yield "Feather 1", b"FEA1" + bytes(100) + b"FEA1"
    rng = np.random.default_rng(32)
    x = pa.array(np.arange(300.0))
    table = pa.table({"x": x, "y": pa.array([i % 3 for i in range(300)]).dictionary_encode()})
    for form, new in made.items():
        for compression in (None, "lz4", "zstd"):
            data = _written(table, new, options=ipc.IpcWriteOptions(compression=compression))
            what = f"Arrow {form}, {compression}"
            yield what, data
            for change, changed in _changed(data, 0, len(data), rng, n_changes):
                yield f"{what}, {change}", changed
            # The lengths of messages follow a mark.
            at = -1
            while (at := data.find(b"\xff\xff\xff\xff", at + 1)) >= 0:
                for claimed in CLAIMS:
                    yield f"{what}, a message of {claimed} bytes at {at}", _patched(data, at + 4, "<I", claimed)
                for change, changed in _changed(data, at + 8, at + 300, rng, n_changes // 2):
                    yield f"{what}, message at {at}, {change}", changed
            for cut in range(0, len(data), max(1, len(data) // 15)):
                yield f"{what}, cut after {cut}", data[:cut]
            if compression:
                # Each compressed buffer begins with the size that it claims to have.
                true_sizes = [struct.pack("<q", 300 * 8), struct.pack("<q", 300 * 4)]
                for size, claimed in itertools.product(true_sizes, CLAIMS):
                    at = data.find(size)
                    if at >= 0:
                        yield f"{what}, a buffer of {claimed} bytes", _patched(data, at, "<Q", claimed)
    schema = table.schema
    sink = io.BytesIO()
    with ipc.new_stream(sink, schema):
        pass
    yield "Arrow stream of a schema alone", sink.getvalue()
    yield "Arrow stream, no end", sink.getvalue()[:-8]


# Text


def json_files() -> Iterator[tuple[str, bytes]]:
    """Yield JSON lines of every kind, each as the first line, the second, and between good ones."""
    good = b'{"a": 1, "b": 2}'
    values = (
        "1", "-0", "1e400", "-1e400", "1e-400", "9" * 400, "9" * 5000, "0." + "9" * 5000, "1E+2", "01", "+1", ".5",
        "1.", "0x1F",
        "1_0", "NaN", "Infinity", "-Infinity", "nan", "true", "false", "null", '""', '"1"', '"\\ud800"', '"\\u0000"',
        '"\x01"',
        "[]", "[1]", "{}", '{"a": 1}', "[" * 2000 + "]" * 2000, "[" * 980 + "]" * 980, "[" * 200_000,
        '{"a":' * 3000 + "1" + "}" * 3000, "1 2", "1,",
        "", "undefined", "'1'", "1 // note", "1 /* note */", "\u00bd", "\u0661", "1\u2028", "1\x0b", "1\xa0",
    )  # fmt: skip
    rows = [f'{{"a": {value}, "b": 2}}'.encode() for value in values] + [f"[{value}, 2]".encode() for value in values]
    rows += [
        b"{}", b"[]", b"[[]]", b"[1]", b"[1, 2, 3]", b'{"a": 1}', b'{"b": 2, "a": 1}', b'{"a": 1, "a": 2, "b": 3}',
        b'{"a": 1, "b": 2, "c": 3}', b'{"a": 1, "b": 2} {"a": 1, "b": 2}', b'{"a": 1, "b": 2},', b'[{"a": 1, "b": 2}]',
        b"null", b"1", b'"a"', b"true", b"{", b"}", b"]", b"[", b"{\x00}", b"\x00", b"\xff\xfe",
        b'{"a\xe9": 1, "b": 2}',
        b'{"\\ud800": 1, "b": 2}', b'{"": 1, " ": 2}', b'{"a": 1, "b": 2', b'{"a" 1}', b"{'a': 1, 'b': 2}",
        b'{"a": 1, "b": 2}\r',
        b'{"a": 1, "b": 2}' + b" " * 100_000, b" " * 70_000 + b'{"a": 1, "b": 2}',
        b'{"a": 1, "b": 2, "c": "' + b"x" * 3_000_000 + b'"}',
        b"{" + b", ".join(b'"%d": 1' % i for i in range(20_000)) + b"}", b"[" + b",".join([b"1"] * 100_000) + b"]",
        b'{"a": 1, "b": {"a": 1, "a": 2}}', b'{"a": {"b": 1}, "b": [[1]]}',
    ]  # fmt: skip
    for row in rows:
        what = row[:50].decode("latin-1")
        yield f"JSON, {what!r} alone", row
        yield f"JSON, {what!r} first", row + b"\n" + good + b"\n"
        yield f"JSON, {what!r} between", b"\n".join([good, row, good, b""])
        yield f"JSON, {what!r} after many", (good + b"\n") * 50 + row + b"\n"
    yield "JSON over lines", json.dumps([{"a": 1, "b": 2}] * 3, indent=1).encode()
    yield "JSON in one array", json.dumps([[1, 2], [3, 4]]).encode()


def csv_files() -> Iterator[tuple[str, bytes]]:
    """Yield text of every kind between delimiters."""
    good = b"1,2\n3,4\n"
    fields = (
        "", " ", '"', '""', '"""', '"1"', '"1', '1"', '"1"2', '1"2"', '"a\nb"', '"a""b"', '"a,b"', "'1'", "1_000",
        "1'000", "1.5.2",
        "0x1F", "1e5", "1e", "e5", "1e400", "-1e-400", "+-1", "--1", "1-", "+", "-", ".", "1.", ".5", "inf",
        "-Infinity", "nan",
        "NaN(1)", "1,5", "50%", "$5", "\u0661", "\uff11", "\u00bd", "\u221e", "1\u00a0000", "\ufeff1", "1\u200b",
        "true", "False",
        "2024-05-01", "10:00", "=1+1", "9" * 400, "9" * 5000, "0" * 100_000 + "1", "\x00", "1\x00", "\x1a",
        "\x1b[31m", "\x7f",
        "#N/A", "null", "?", "a" * 300_000, "\ud83d\ude00".encode("utf-16", "surrogatepass").decode("utf-16"),
        "\u2028", "\x85",
        "\x0b1", "1\x0c", "1j", "1L", "0b1", "\\N", "\\", "a\\,b", "1\t", "\t1",
    )  # fmt: skip
    for field in fields:
        data, what = field.encode(), field[:20]
        yield f"CSV, {what!r} first", data + b",2\n" + good
        yield f"CSV, {what!r} first and alone", data
        yield f"CSV, {what!r} alone in its column", data + b"\n1\n2\n"
        yield f"CSV, {what!r} in a row", b"a,b\n1,2\n" + data + b",4\n" + good
        yield f"CSV, {what!r} after names", b"a,b\n1," + data + b"\n"
        yield f"CSV, {what!r} as a name", data + b"," + data + b"\n" + good
        yield f"CSV, {what!r} at the end", b"a,b\n1,2\n3," + data
    text = "zeit,Temp\u00b0\n1,2\n3,4\n"
    for encoding in (
        "utf-8",
        "utf-8-sig",
        "latin-1",
        "cp1252",
        "utf-16",
        "utf-16-le",
        "utf-16-be",
        "utf-32",
        "utf-7",
        "cp037",
    ):
        yield f"CSV in {encoding}", text.encode(encoding)
    for end in (
        b"\r",
        b"\r\n",
        b"\n\r",
        b"\r\r\n",
        b"\x1e",
        b"\x85",
        b"\xe2\x80\xa8",
        b"\n\n",
        b"\x00\n",
        b" \n",
        b",\n",
        b";\n",
    ):
        yield f"CSV, lines end in {end!r}", b"a,b" + end + b"1,2" + end + b"3,4" + end
    for delimiter in (
        b",",
        b";",
        b"\t",
        b" ",
        b"  ",
        b"|",
        b":",
        b"\x01",
        b"a",
        b"1",
        b".",
        b'"',
        b"",
        b", ",
        b"\xc2\xa7",
    ):
        yield f"CSV, {delimiter!r} between fields", b"\n".join([b"a" + delimiter + b"b", b"1" + delimiter + b"2", b""])
        yield f"CSV, {delimiter!r} between numbers", b"\n".join([b"1" + delimiter + b"2"] * 3)
        yield f"CSV, many {delimiter!r}", delimiter * 1000 + b"\n" + delimiter * 1000
    yield "CSV, ragged rows", b"".join(b",".join([b"1"] * (1 + i % 7)) + b"\n" for i in range(2000))
    yield (
        "CSV, a hundred thousand columns",
        b"\n".join([b",".join(b"c%d" % j for j in range(100_000)), b",".join([b"1"] * 100_000)]),
    )
    yield "CSV, a hundred thousand bare columns", b"\n".join([b",".join([b"1"] * 100_000)] * 2)
    yield "CSV, a hundred thousand equal names", b"\n".join([b",".join([b"a"] * 100_000), b",".join([b"1"] * 100_000)])
    yield "CSV, a line of 20 MB", b"1," + b"2" * 20_000_000
    yield "CSV, a name of 20 MB", b"a" * 20_000_000 + b"\n1\n"
    yield "CSV, blank lines", b"a\n" + b"\n" * 3_000_000 + b"1\n"
    yield "CSV, an open quotation mark", b'a,b\n1,"' + b"2,3\n" * 200_000
    yield "CSV, quotation marks", b'"' * 500_000
    yield "CSV, quotation marks and line ends", b'"\n' * 100_000
    yield "CSV, quoted fields", b"a,b\n" + b'"1","2"\n' * 20_000
    yield "CSV, every other field quoted wrongly", b"a,b\n" + b'1,2\n"1"x,2\n' * 5_000
    yield "CSV, commas", b"," * 3_000_000
    yield "CSV, zeros", bytes(100_000)
    yield "CSV, zeros after a row", b"a,b\n1,2\n" + bytes(100_000)
    for beginning in (
        b"", b"\n", b"\xef\xbb\xbf", b"\xef\xbb\xbf\n", b"\xef\xbb\xbf\xef\xbb\xbfa,b\n1,2\n", b"\xfe\xff",
        b"\xff\xfe\x00\x00", b"#",
        b"# a b\n1 2\n", b"sep=;\na;b\n1;2\n", b"\x1a", b"\x00", b"%PDF-1.7\n1,2\n", b"<!DOCTYPE html>\n<html>\n",
        b"<?xml version='1.0'?>\n<a/>\n",
        b"\x89PNG\r\n\x1a\n" + bytes(50), b"GIF89a" + bytes(50), b"\xff\xd8\xff\xe0" + bytes(50),
        b"SQLite format 3\x00" + bytes(50),
        b"\x80\x04\x95" + bytes(50), b"\x80\x02}q\x00.", b"MATLAB 5.0 MAT-file, Platform" + bytes(100),
        b"\x7fELF" + bytes(50),
        b"7z\xbc\xaf\x27\x1c" + bytes(50), b"Rar!\x1a\x07" + bytes(50), b"OggS" + bytes(50),
        b"RIFF\x00\x00\x00\x00WAVE" + bytes(50),
        b"ORC" + bytes(50), b"Obj\x01" + bytes(50), b"FEA1" + bytes(50), b"CDF\x01" + bytes(50),
        b"RDX3\nX\n" + bytes(50), b"BM" + bytes(50),
        b"a.csv".ljust(257, b"\x00") + b"ustar\x0000" + bytes(300), b"II*\x00" + bytes(50), b"{\\rtf1 a}",
        b"From: a@b\n\n1,2\n", b"@relation x\n1,2\n",
    ):  # fmt: skip
        yield f"begins with {beginning[:25]!r}", beginning
        yield f"begins with {beginning[:25]!r}, then rows", beginning + b"a,b\n1,2\n"


def compressed_files(n_bits: int = 24) -> Iterator[tuple[str, bytes]]:
    """Yield compressed tables of every kind: nested, damaged, cut, and some of 2^n_bits equal bytes."""
    text = b"a,b\n" + b"1,2\n" * 1000
    packed = {"gz": gzip.compress(text, mtime=0), "bz2": bz2.compress(text), "xz": lzma.compress(text)}
    packed["lzma alone"] = lzma.compress(text, lzma.FORMAT_ALONE)
    packed["zlib"] = zlib.compress(text)
    for codec in ("zstd", "lz4"):
        packed[codec] = pa.compress(text, codec, asbytes=True)
        sink = pa.BufferOutputStream()
        with pa.CompressedOutputStream(sink, codec) as stream:
            stream.write(text)
        packed[f"{codec} stream"] = sink.getvalue().to_pybytes()
    rng = np.random.default_rng(33)
    for name, data in packed.items():
        yield name, data
        yield f"{name}, twice", data + data
        yield f"{name}, then text", data + b"a,b\n1,2\n"
        yield f"{name}, nested", gzip.compress(data, mtime=0)
        for cut in (1, 4, 8, 12, 20, len(data) // 2, len(data) - 1):
            yield f"{name}, cut after {cut}", data[:cut]
        for change, changed in _changed(data, 0, min(len(data), 40), rng, 12):
            yield f"{name}, {change}", changed
    for what, inner in (
        ("npy", npy()),
        ("huge npy", npy((1, 2**40))),
        ("npy of columns", npy((2**40, 2), order=True)),
        ("npz", zipped(("a.npy", npy()))),
    ):
        yield f"{what} in gz", gzip.compress(inner, mtime=0)
    yield "a bomb of zeros in gz", gzip.compress(bytes(2**n_bits), 1, mtime=0)
    yield "a bomb of one line in gz", gzip.compress(b"1" * 2**n_bits, 1, mtime=0)
    yield "a bomb of line ends in bz2", bz2.compress(b"a\n" + b"\n" * (2**n_bits // 8))
