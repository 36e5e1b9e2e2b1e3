"""Entry of the command ``streamkpca`` and of ``python -m streamkpca``."""

import signal
import sys
from importlib.util import find_spec

_NEEDED = ("click", "pyarrow", "matplotlib")


def main() -> None:
    """Run the command, or say in one line which libraries it lacks."""
    # Until a command handles it, Ctrl-C ends the process. As an exception it may come in a callback of an import, where
    # Python drops it, and a command that follows a file would then follow it for ever.
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    missing = [name for name in _NEEDED if find_spec(name) is None]
    if missing:
        sys.exit(f'streamkpca: the command needs {", ".join(missing)}; pip install "streamkpca[cli]"')
    from streamkpca.cli.commands import cli

    cli(prog_name="streamkpca")


if __name__ == "__main__":
    main()
