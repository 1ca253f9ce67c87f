"""``farhand completion``: what a shell needs to complete commands, options and choices."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from .program import PROGRAM_NAME

SHELLS = ("bash", "zsh", "fish")


@click.command()
@click.argument("shell", type=click.Choice(SHELLS))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print the shell's part of completion by TAB.

    For bash: eval "$(farhand completion bash)" in ~/.bashrc; for zsh the same in ~/.zshrc; for fish:
    farhand completion fish > ~/.config/fish/completions/farhand.fish
    """
    found = get_completion_class(shell)
    assert found is not None
    variable = f"_{PROGRAM_NAME.upper()}_COMPLETE"
    click.echo(found(ctx.find_root().command, {}, PROGRAM_NAME, variable).source())
