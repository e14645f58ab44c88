"""`mainstem completion`."""

from __future__ import annotations

import click


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print the completion script for SHELL.

    \b
      bash   eval "$(mainstem completion bash)"                 in ~/.bashrc
      zsh    eval "$(mainstem completion zsh)"                  in ~/.zshrc
      fish   mainstem completion fish | source                  in ~/.config/fish/config.fish
    """
    from click.shell_completion import get_completion_class

    from mainstem.cli.main import cli
    from mainstem.errors import invariant

    kind = get_completion_class(shell)
    invariant(kind is not None, "click completes in every shell that can be chosen")
    if kind is not None:
        click.echo(kind(cli, {}, "mainstem", "_MAINSTEM_COMPLETE").source())
