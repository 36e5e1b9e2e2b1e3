"""The command ``streamkpca`` and its subcommands as users see them: arguments, help, errors of one line, exit codes.

Their work is imported when it is to be done, because the compiled loops take a second to load.
"""

import warnings
from typing import Any

import click

from streamkpca._version import __version__
from streamkpca.cli import options
from streamkpca.cli.console import escape_letters, print_warning, printable
from streamkpca.errors import text_of

_INTERRUPTED = 130


@click.command()
@click.option(
    "--out",
    default="streamkpca-demo",
    type=click.Path(file_okay=False),
    help="Folder for the simulated file and its picture.",
)
def demo(out: str) -> None:
    """Watch a simulated machine, and find its faults.

    The machine has five sensors, a row a minute for a week, and three labelled faults. None of this is real data.
    """
    from streamkpca.cli.demo import run_demo

    run_demo(watch, out)


@click.command()
@options.files_argument
@click.option("--model", type=options.FILE, help="Go on with this model, if it exists; save it.")
@click.option("--from-start", is_flag=True, help="Watch anew what the model has seen.")
@click.option(
    "--healthy-until", metavar="TIME|ROWS", type=options.read_until, help="Rows before it are known to be healthy."
)
@click.option(
    "--accept",
    type=options.read_accepted,
    multiple=True,
    metavar="N|change",
    help="Event N of the model, or its lasting change, was fine: learn it.",
)
@click.option("--confirm", type=int, multiple=True, metavar="N", help="Event N of the model was a fault.")
@options.watching_options
def watch(**given: Any) -> None:
    """Find what is unusual in a file, in one pass.

    FILE... are tables as loggers and spreadsheets write them, such as CSV or Parquet; - is standard input. What no
    option says is found in the first rows, and printed as options. Each row is scored by those before it, then learned
    if it is normal.

    \b
    streamkpca watch server.csv
    streamkpca watch server.csv --model server.npz --plot events.png
    streamkpca watch log.csv --model plant.npz --follow --json
    """  # noqa: D301
    from streamkpca.cli.watch import watch

    watch(**given)


@click.command()
@options.files_argument
@click.option("--model", type=options.FILE, help="Save the model here.")
@click.option("--resume", is_flag=True, help="Continue the model in --model, if that file exists.")
@click.option(
    "--save-every",
    type=click.FloatRange(0.0),
    metavar="SECONDS",
    help="Also save the model while it learns.  [default: only at the end; 60 with --follow]",
)
@click.option("--from-start", is_flag=True, help="With --resume: learn files anew that were learned before.")
@options.follow_option
@options.table_options
@options.json_option
@options.parameter_options
def fit(**given: Any) -> None:
    """Learn rows of files or of a pipe.

    FILE... may have any format that streamkpca watch reads; - is standard input.

    \b
    streamkpca fit readings.csv --drop time --model plant.npz
    collect | streamkpca fit - --model plant.npz --resume
    streamkpca fit log.csv --follow --model plant.npz --resume --time when

    --model saves what was learned, also after Ctrl-C or SIGTERM; with --resume a later run continues there. The file
    also records up to where each FILE was learned: one that has grown is learned from there on, each row once, even
    after a kill. It keeps the names of the columns too, by which later commands find them.
    """  # noqa: D301
    from streamkpca.cli.fit import fit

    fit(**given)


@click.command()
@options.files_argument
@options.model_option
@options.watching_options
def score(**given: Any) -> None:
    """Find rows unlike those that a saved model has learned.

    FILE... may have any format that streamkpca watch reads; - is standard input.

    \b
    streamkpca score today.csv --model plant.npz
    streamkpca score today.csv --model plant.npz --labels fault --save scores.csv
    streamkpca score log.csv --model plant.npz --follow --json

    Events are told as by streamkpca watch. The model learns normal rows until the end of FILE, but its file stays as it
    is: watch --model saves it.
    """  # noqa: D301
    from streamkpca.cli.watch import score

    score(**given)


@click.command()
@click.argument("model", metavar="MODEL", type=options.FILE)
@options.json_option
def info(**given: Any) -> None:
    """Show what a saved model has learned.

    The file is not trusted: it is checked as a whole, and nothing in it is run or unpickled.
    """
    from streamkpca.cli import manage

    manage.info(**given)


@click.command()
@click.argument("model", metavar="MODEL", type=options.FILE)
@options.files_argument
@click.option("--out", required=True, type=options.FILE, help="Save the merged model here.")
def merge(**given: Any) -> None:
    """Make one model of several.

    FILE... are saved models with the kernel of MODEL, scale included, and states of devices that began with MODEL. Each
    has learned rows of its own.
    """
    from streamkpca.cli import manage

    manage.merge(**given)


@click.command()
@click.argument("model", metavar="MODEL", type=options.FILE)
@options.files_argument
@options.json_option
def fleet(**given: Any) -> None:
    """Find the odd machines of a fleet.

    FILE... are what each machine has learned: states of devices that began with MODEL, and saved models of its kernel.
    Machines that are as odd as one in 200 healthy fleets are shown, the oddest first, with the columns in which
    they differ.
    """
    from streamkpca.cli import manage

    manage.fleet(**given)


@click.command()
@click.argument("model", metavar="MODEL", type=options.FILE)
@click.argument("out", metavar="OUT.onnx|OUT.c", type=options.FILE)
@click.option("--double", is_flag=True, help="Write numbers in double precision.  [default: single]")
@click.option("--learns", is_flag=True, help="C: go on learning on the device.")
@click.option(
    "--return-period",
    type=click.FloatRange(2.0, 10_000.0),
    default=100.0,
    metavar="ROWS",
    help="C, with --learns: one alarm in this number of healthy rows.",
)
@click.option("--name", default="streamkpca", metavar="PREFIX", help="C: prefix of the functions.")
def export(**given: Any) -> None:
    """Write a model in C or for ONNX runtimes.

    OUT.c is a C99 file without heap for microcontrollers. Rows are complete, without gaps, also if the model takes
    them with gaps.
    """
    from streamkpca.cli import manage

    manage.export(**given)


@click.command("warmup")
def warm_up() -> None:
    """Compile all loops now.

    For container images and installers: no later process has to compile them then.

    Compiled loops are kept beside the package, or else in the user's cache; the environment variable
    NUMBA_CACHE_DIR names another folder. Later users of the package must be allowed to write there too.
    """
    from streamkpca.cli import manage

    manage.warm_up()


class Commands(click.Group):
    """Commands in the order of a first use. Errors of the library and of the system are one line and an exit code."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of the commands."""
        del ctx
        return list(self.commands)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the chosen command."""
        escape_letters()
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
    commands=(watch, demo, fit, score, info, merge, fleet, export, warm_up),
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
