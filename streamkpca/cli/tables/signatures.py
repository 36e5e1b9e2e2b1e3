"""What a file is that is no table: told by its first bytes, or by the members of an archive."""

import re
from collections.abc import Sequence
from typing import NamedTuple

_CSV = "save it as CSV, Parquet or Arrow"
_EXPORT = f"open it with the program that made it, and {_CSV}"
_PICTURE = "give the numbers that it shows, as CSV, Parquet or Arrow"
_UNPACK = "unpack it, and name the table in it"


class Contents(NamedTuple):
    """What a file is, and what to do about it."""

    what: str
    remedy: str


def _of(beginning: bytes, what: str, remedy: str = _EXPORT) -> tuple[re.Pattern[bytes], Contents]:
    return re.compile(beginning, re.DOTALL), Contents(what, remedy)


_SIGNATURES = (
    _of(rb"\x89PNG\r?\n", "a PNG picture", _PICTURE),
    _of(rb"\xff\xd8\xff", "a JPEG picture", _PICTURE),
    _of(rb"GIF8[79]a", "a GIF picture", _PICTURE),
    _of(rb"(II\*\x00|MM\x00\*)", "a TIFF picture", _PICTURE),
    _of(rb"BM.{4}\x00\x00\x00\x00", "a BMP picture", _PICTURE),
    _of(rb"RIFF.{4}(WAVE|AVI |WEBP)", "a sound, a video or a picture", _PICTURE),
    _of(rb"(OggS\x00|fLaC\x00|ID3[\x02-\x04])", "a sound", _PICTURE),
    _of(rb"\x00\x00\x00.ftyp", "a video", _PICTURE),
    _of(rb"%PDF-", "a PDF document", "give the table in it as CSV, Parquet or Arrow"),
    _of(rb"\{\\rtf", "an RTF document", "give the table in it as CSV, Parquet or Arrow"),
    _of(rb"(?i:\s*<(!doctype )?html\b)", "a web page", "download the file itself, not the page that shows it"),
    _of(rb"\s*<\?xml\b", "XML", _CSV),
    _of(rb"\x89HDF", "an HDF5 file, which cannot be read", _CSV),
    _of(rb"CDF[\x01\x02\x05]", "a NetCDF file", _CSV),
    _of(rb"\xd0\xcf\x11\xe0", "an Excel file of before 2007, or another document of Microsoft Office", _CSV),
    _of(rb"SQLite format 3\x00", "an SQLite database", "export the table from it as CSV"),
    _of(rb"\x80[\x02-\x05](\x95|[\]}()cq\x8c])", "a Python pickle, which is never read because it may run code", _CSV),
    _of(rb"MATLAB 5\.0 MAT-file", "a MATLAB file", _CSV),
    _of(rb"(RD[AX][23]\n[AX]\n|X\n\x00\x00)", "a file of R", "save it in R with write.csv"),
    _of(rb"ORC[\x00-\x1f]", "an ORC file", "save it as Parquet"),
    _of(rb"Obj\x01", "an Avro file", "save it as Parquet"),
    _of(rb"FEA1\x00", "a Feather file of version 1", "save it again with a newer pyarrow, which writes version 2"),
    _of(rb".{257}ustar[\x00 ]", "a tar archive", _UNPACK),
    _of(rb"7z\xbc\xaf\x27\x1c", "a 7z archive", _UNPACK),
    _of(rb"Rar!\x1a\x07", "a RAR archive", _UNPACK),
    _of(rb"(PK\x07\x08|MSCF\x00)", "an archive in parts", _UNPACK),
    _of(rb"\x1f\x9d", "a file compressed by compress", "unpack it, or compress it as gzip"),
    _of(rb"\x1f\x8b", "a gzip file within another compressed one", "unpack it once"),
    _of(rb"\x7fELF|MZ.\x00|\xca\xfe\xba\xbe|\xcf\xfa\xed\xfe", "a program", "name a table"),
)

# Whether a member of a zip archive of this name tells what the archive is; the first that is found counts.
_MEMBERS = (
    (r"xl/.*", "an Excel file", _CSV),
    (r"word/.*", "a Word document", "give the table in it as CSV, Parquet or Arrow"),
    (r"ppt/.*", "a PowerPoint document", "give the table in it as CSV, Parquet or Arrow"),
    (r"(.*/)?data\.pkl", "a model or tensor of PyTorch", _CSV),
    (r"META-INF/MANIFEST\.MF", "a Java archive", "name a table"),
    (r"mimetype", "an OpenDocument file", _CSV),
)
_MODEL = "header.json"


def contents_of(head: bytes) -> Contents | None:
    r"""Tell by its first bytes what a file is, if it is neither text nor a table; None if they tell nothing.

    Examples
    --------
    >>> contents_of(b"\x89PNG\r\n\x1a\n").what
    'a PNG picture'
    >>> contents_of(b"a,b\n1,2\n") is None
    True
    """
    return next((contents for beginning, contents in _SIGNATURES if beginning.match(head)), None)


def contents_of_zip(names: Sequence[str]) -> Contents | None:
    """Tell by its members' names what a zip archive is; None if it holds arrays and is no saved model.

    Examples
    --------
    >>> contents_of_zip(["[Content_Types].xml", "xl/workbook.xml"]).what
    'an Excel file'
    >>> contents_of_zip(["rows.npy"]) is None
    True
    """
    if _MODEL in names:
        return Contents("a saved model, not a table", "give it with --model, and name a table here")
    if any(name.endswith(".npy") for name in names):
        return None
    for pattern, what, remedy in _MEMBERS:
        if any(re.fullmatch(pattern, name) for name in names):
            return Contents(what, remedy)
    holds = (
        f"a zip archive of {names[0][:60]!r}" + (" and others" if names[1:] else "")
        if names
        else "an empty zip archive"
    )
    return Contents(f"{holds}, without arrays of numpy", _UNPACK if names else "name a table")
