"""Entry of the command ``streamkpca`` and of ``python -m streamkpca``."""

import os
import sys
from importlib.util import find_spec

_NEEDED = ("click", "rich", "pyarrow", "matplotlib")


def main() -> None:
    """Run the command, or say in one line what must be installed for it."""
    try:
        missing = [name for name in _NEEDED if find_spec(name) is None]
        if missing:
            sys.stderr.write(f'streamkpca: the command needs {", ".join(missing)}; pip install "streamkpca[cli]"\n')
            sys.exit(2)
        _occupy_closed_streams()
        from streamkpca.cli.main import cli

        cli(prog_name="streamkpca")
    except KeyboardInterrupt:
        # Before the command has begun, or after its end.
        if sys.stderr is not None:
            sys.stderr.write("streamkpca: interrupted\n")
        sys.exit(130)


def _occupy_closed_streams() -> None:
    """Open the null device where standard streams are closed: what C libraries print must not go to our files."""
    for descriptor in (0, 1, 2):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)


if __name__ == "__main__":
    main()
