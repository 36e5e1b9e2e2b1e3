"""The error of tables, and what its messages quote."""

import shlex
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

# What libraries raise that did not expect such a file.
_STUMBLES = (LookupError, TypeError, AttributeError, RecursionError)
_SHOWN_NAMES = 8
_SHOWN_LETTERS = 60


class TableError(ValueError):
    """Raised when a file cannot be read as a table; the message is one line, even where names hold line ends."""

    def __init__(self, message: str) -> None:
        super().__init__(" ".join(message.encode("utf-8", "replace").decode().split()))


@contextmanager
def reading_errors(path: str) -> Iterator[None]:
    """Turn whatever a library raises over damaged bytes into a TableError that names the file."""
    try:
        yield
    except TableError:
        raise
    except Exception as error:
        reason = getattr(error, "strerror", None) or (str(error).splitlines() or [""])[0].rstrip(".:")[:200]
        if isinstance(error, MemoryError):
            reason = "it claims to need more memory than there is"
        elif not reason or " at 0x" in reason or isinstance(error, _STUMBLES):
            reason = "its parts contradict each other"
        remedy = "check that the file is complete and has the format it claims"
        raise TableError(f"{path}: cannot be read ({reason}); {remedy}") from None


def short(text: str) -> str:
    """Cut text from a file to a length that an error can quote."""
    return text if len(text) <= _SHOWN_LETTERS else f"{text[:_SHOWN_LETTERS]}..."


def write_names(names: Iterable[str], mark: str = ",") -> str:
    """Write names of columns as options take them: with commas between them, and quoted if they hold one."""
    return mark.join('"' + name.replace('"', '""') + '"' if {*name} & {*',"'} else name for name in names)


def drop_hint(name: str) -> str:
    """Say how a column is left out."""
    return f"to leave the column out: --drop {shlex.quote(write_names([short(name)]))}"


def list_names(names: Sequence[str]) -> str:
    """List the first of some names, and count the others."""
    n_more = len(names) - _SHOWN_NAMES
    return write_names(map(short, names[:_SHOWN_NAMES]), ", ") + f" and {n_more:,} more" * (n_more > 0)
