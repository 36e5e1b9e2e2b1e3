"""The formats of files, by their first bytes: to add one, write its reader, and give it a line here."""

import re
from collections.abc import Callable, Sequence

from streamkpca.tables.array_readers import ArrowReader, NpyReader, ParquetReader
from streamkpca.tables.columns import Asked
from streamkpca.tables.csv_reader import CsvReader
from streamkpca.tables.errors import TableError
from streamkpca.tables.json_reader import JsonReader
from streamkpca.tables.readers import Reader
from streamkpca.tables.sheet_reader import SheetReader
from streamkpca.tables.source import Source

# The first that fits. Letters that may also begin a column's name must not be followed by a delimiter.
FORMATS: Sequence[tuple[bytes, Callable[[Source, Asked], Reader] | None]] = (
    (rb"\x93NUMPY", NpyReader),
    (rb"PAR1(?![,;\t|\r\n])", ParquetReader),
    (rb"ARROW1(?![,;\t|\r\n])", ArrowReader),
    # Pictures, documents and models.
    (rb"\x89PNG|\xff\xd8\xff|GIF8|%PDF-|PK\x03\x04.{26}(header\.json|.{1,30}\.npy)", None),
    (rb"PK\x03\x04|\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", SheetReader),
    (rb"(\xef\xbb\xbf)?\s*[{\[]", JsonReader),
    (rb"", CsvReader),
)


def open_reader(source: Source, asked: Asked) -> Reader:
    """Open the reader of the format that the first bytes tell."""
    head = source.peek(lambda head: len(head.removeprefix(b"\xef\xbb\xbf").lstrip()) >= 8 or b"\n" in head.lstrip())
    reader = next(reader for begin, reader in FORMATS if re.match(begin, head, re.DOTALL))
    if reader is None:
        raise TableError(f"{source.name}: is a picture, a document or a model; give a table (--model takes models)")
    if source.follows and reader not in (CsvReader, JsonReader):
        raise TableError(f"{source.name}: only text (CSV, JSON lines) grows row by row; leave --follow out")
    return reader(source, asked)
