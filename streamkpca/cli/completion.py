"""The command completion: scripts that let shells complete commands, options and files."""

import click
from click.shell_completion import get_completion_class

from streamkpca.cli.console import print_json

INSTALL = {
    "bash": 'eval "$(streamkpca completion bash)" in ~/.bashrc',
    "zsh": 'eval "$(streamkpca completion zsh)" in ~/.zshrc, after compinit',
    "fish": "streamkpca completion fish > ~/.config/fish/completions/streamkpca.fish",
}


def completion(shell: str, as_json: bool) -> None:
    """Print the script that lets a shell complete commands, options, their values, and files."""
    root = click.get_current_context().find_root()
    kind = get_completion_class(shell)
    assert kind is not None
    # Not `source()`: that first looks for a bash, which need not be the one that will read this.
    maker = kind(root.command, {}, "streamkpca", "_STREAMKPCA_COMPLETE")
    script = f"# To install: {INSTALL[shell]}\n{maker.source_template % maker.source_vars()}"
    if as_json:
        print_json({"shell": shell, "install": INSTALL[shell], "script": script})
    else:
        click.echo(script)
