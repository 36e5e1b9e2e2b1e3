"""How every table says what is wrong with its source: in one line, with a remedy."""

import lzma
import tokenize
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType

_UNREADABLE = (
    OSError,
    ValueError,
    EOFError,
    MemoryError,
    RuntimeError,
    zipfile.BadZipFile,
    zlib.error,
    lzma.LZMAError,
    tokenize.TokenError,
)


class TableError(ValueError):
    """Raised when a file cannot be read as rows of numbers.

    The message is one line, whatever the names in it: where, what is wrong, and what to do about it.
    """

    def __init__(self, message: str) -> None:
        super().__init__(" ".join(message.splitlines()))


@contextmanager
def blaming(source: str) -> Iterator[None]:
    """Turn what numpy, zipfile, the decompressors and pyarrow say of a bad file into one line that names the file.

    Parameters
    ----------
    source : str
        The file.

    Raises
    ------
    TableError
        For any error that tells of a file that is not what it claims to be.
    """
    try:
        yield
    except TableError:
        raise
    except _UNREADABLE as error:
        reason = getattr(error, "strerror", None) or (str(error).splitlines() or [type(error).__name__])[0]
        raise TableError(
            f"{source}: cannot be read ({reason}); is the file whole and of the format it claims?"
        ) from None


def need_pyarrow(source: str) -> ModuleType:
    """Import pyarrow, which parses text, Parquet and Arrow.

    Parameters
    ----------
    source : str
        The file that needs it.

    Returns
    -------
    module
        pyarrow, with its parsers loaded.

    Raises
    ------
    TableError
        pyarrow is not installed.
    """
    try:
        import pyarrow
        import pyarrow.csv
        import pyarrow.json
        import pyarrow.parquet
    except ImportError:
        raise TableError(f'{source}: reading it needs pyarrow; pip install "streamkpca[cli]"') from None
    module: ModuleType = pyarrow
    return module
