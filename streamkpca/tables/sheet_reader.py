"""Spreadsheets: the first sheet that has rows, as text."""

from streamkpca.tables.columns import Asked
from streamkpca.tables.csv_reader import CsvReader
from streamkpca.tables.errors import TableError
from streamkpca.tables.source import Source, spell


class SheetReader(CsvReader):
    """Rows of the first sheet that has some: a line for each row, with tabs between cells."""

    def __init__(self, source: Source, asked: Asked) -> None:
        try:
            from python_calamine import CalamineWorkbook
        except ImportError:
            remedy = 'pip install "streamkpca[xlsx]", or save it as CSV'
            raise TableError(f"{source.name}: is a spreadsheet, which needs python-calamine; {remedy}") from None
        book = CalamineWorkbook.from_path(source.on_disk())
        sheets = ((name, book.get_sheet_by_name(name).to_python(skip_empty_area=False)) for name in book.sheet_names)
        name, rows = next(((name, rows) for name, rows in sheets if len(rows) > 1), ("", []))
        source.text = "".join("\t".join(map(spell, row)) + "\n" for row in rows).encode()
        if len(book.sheet_names) > 1:
            source.notes.append(f"{source.name}: has {len(book.sheet_names)} sheets; reading {name!r}")
        super().__init__(source, asked)
