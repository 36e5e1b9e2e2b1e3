"""The command ``streamkpca``: a contents page of its subcommands."""

import click

from streamkpca._version import __version__
from streamkpca.cli.commands import completion, demo, export, fit, impute, info, merge, score, transform, warm_up
from streamkpca.cli.console import OneLineErrors
from streamkpca.cli.plot_commands import plot

# The control character keeps click from joining the lines.
_HELP = """Learn streams of numbers by sparse kernel PCA, in one pass and bounded memory.

\b
streamkpca demo                                       a simulated plant with faults
streamkpca fit readings.csv --model plant.npz         learn a file, and save the model
collect | streamkpca fit - --model plant.npz --resume continue with rows from a pipe
streamkpca score new.csv --model plant.npz            find rows unlike those learned
streamkpca transform new.csv --model plant.npz        project rows, as CSV on standard output
streamkpca impute gaps.csv --model plant.npz          complete rows with gaps
streamkpca plot novelty new.csv --model plant.npz --save novelty.png
streamkpca plot spectrum plant.npz --save spectrum.png
streamkpca info plant.npz                             what a model has learned
streamkpca merge east.npz west.npz --out both.npz     one model of two
streamkpca export plant.npz plant.onnx                for ONNX runtimes; plant.c for microcontrollers
streamkpca warmup                                     compile all loops now, for images
streamkpca completion bash                            TAB completes commands, options and files

Each command has its own --help, with examples, and --json for machines.

Environment: NUMBA_CACHE_DIR, the folder of compiled loops; OPENBLAS_NUM_THREADS, the number of threads; NO_COLOR.

Exit codes: 0 done; 2 usage error or bad input (one line says what is wrong); 130 stopped by Ctrl-C, 143 by SIGTERM, 129
by SIGHUP; 141 the reader of standard output closed the pipe.
"""


@click.group(
    cls=OneLineErrors,
    help=_HELP,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
)
@click.version_option(__version__)
def cli() -> None:
    """Learn streams of numbers by sparse kernel PCA."""


for _command in (demo, fit, score, transform, impute, plot, info, merge, export, warm_up, completion):
    cli.add_command(_command)
