"""The command ``streamkpca``: its subcommands in one group, which turns every error into one line."""

import warnings
from typing import Any

import click

from streamkpca._version import __version__
from streamkpca.cli.commands import COMMANDS
from streamkpca.cli.console import print_warning, printable
from streamkpca.errors import text_of

_INTERRUPTED = 130


class Commands(click.Group):
    """Commands in the order of a first use. Errors of the library and of the system are one line and an exit code."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of the commands."""
        del ctx
        return list(self.commands)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the chosen command."""
        try:
            with warnings.catch_warnings():
                warnings.showwarning = _show_warning
                return super().invoke(ctx)
        except KeyboardInterrupt:
            click.echo("Interrupted", err=True)
            ctx.exit(_INTERRUPTED)
        except BrokenPipeError:
            # The reader of standard output has seen enough; click ends quietly.
            raise
        except OSError as error:
            where = "" if error.filename is None else f"{error.filename}: "
            reason = f"{where}{error.strerror or error}"
        except MemoryError:
            reason = "not enough memory; ask for fewer --max-atoms or --chunk-rows"
        except (ValueError, ImportError) as error:
            reason = text_of(error)
        raise click.ClickException(printable(reason))


def _show_warning(message: Warning | str, *where: Any, **more: Any) -> None:
    del where, more
    print_warning(str(message))


@click.group(
    cls=Commands,
    commands=COMMANDS,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110, "show_default": True},
)
@click.version_option(__version__)
def cli() -> None:
    """Learn streams of numbers by sparse kernel PCA, in one pass and bounded memory.

    \b
    streamkpca watch readings.csv                   find what is unusual in a file: when, where, and how sure
    streamkpca fit normal.csv --model plant.npz     learn a file, and save the model
    streamkpca score today.csv --model plant.npz    find rows unlike those learned
    streamkpca COMMAND --help                       options of a command

    Exit codes: 0 done; 1 bad input; 2 wrong use; 130, 143, 129 stopped by Ctrl-C, SIGTERM or SIGHUP.
    """  # noqa: D301
