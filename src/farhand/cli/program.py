"""The table of commands, and what the program does about errors."""

from __future__ import annotations

import gc
import importlib
import sys
from dataclasses import dataclass
from typing import Any, NoReturn

import click

from .. import __version__
from ..errors import FarhandError
from . import INTERRUPTED

PROGRAM_NAME = "farhand"


@dataclass(frozen=True, slots=True)
class Entry:
    """A command: the module under `farhand.cli` that has it under ``name``, and its one line of help."""

    name: str
    module: str
    help: str


COMMANDS = (
    Entry("init", "init", "Make a project: one flow, a test of it, and farhand.toml."),
    Entry("check", "check", "Import the flows of a directory, and say what a server would offer."),
    Entry("serve", "serve", "Run the server."),
    Entry("stop", "stop", "Stop the server of a home, and wait until it has ended."),
    Entry("run", "run", "Run a flow here, in this process."),
    Entry("worker", "worker", "Offer this machine to a server, until told to stop."),
    Entry("demo", "demo", "Run a pipeline over real weather data on a server and a worker."),
    Entry("signin", "signin", "Print a link that signs a browser in to the console, once."),
    Entry("deploy", "deploy", "Inspect a directory here, and give its flows to a server."),
    Entry("flows", "flows", "What the server can run."),
    Entry("flavors", "flavors", "Named sizes, for flows and tasks to ask for."),
    Entry("runs", "runs", "Start runs on the server, look at them, cancel and retry them."),
    Entry("sweep", "sweep", "Start a flow once for every combination of parameters."),
    Entry("artifacts", "artifacts", "The files that runs saved."),
    Entry("schedules", "schedules", "What the server starts by the clock."),
    Entry("services", "services", "The server processes that are kept on workers."),
    Entry("workers", "workers", "The machines that work for the server."),
    Entry("provisioners", "provisioners", "What can start machines: a batch scheduler, or any script."),
    Entry("backup", "backup", "Copy the store, its files and keys to FILE, while runs go on."),
    Entry("restore", "backup", "Make a new home from FILE."),
    Entry("tokens", "tokens", "Credentials for machines and people."),
    Entry("secrets", "secrets", "Values that jobs may read and nobody is shown."),
    Entry("variables", "variables", "Plain values that jobs may read."),
    Entry("events", "events", "What happened, to runs, workers, services and machines."),
    Entry("audit", "audit", "Who changed what."),
    Entry("completion", "completion", "Print the shell's part of completion by TAB."),
    Entry("doctor", "doctor", "Look for what is wrong, and show what everything runs on."),
)
"""In the order in which help lists them."""

_BY_NAME = {entry.name: entry for entry in COMMANDS}


class Program(click.Group):
    """Commands that are imported only when they are called; help is told from the table."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names, in the table's order."""
        return [entry.name for entry in COMMANDS]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command itself."""
        entry = _BY_NAME.get(cmd_name)
        if entry is None:
            return None
        command = getattr(importlib.import_module(f"farhand.cli.{entry.module}"), entry.name)
        gc.enable()
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The list of commands, without importing any."""
        with formatter.section("Commands"):
            formatter.write_dl([(entry.name, entry.help) for entry in COMMANDS])

    def main(self, *args: Any, standalone_mode: bool = True, **extra: Any) -> Any:
        """Run a command and end the process with its exit code."""
        if not standalone_mode:
            return super().main(*args, standalone_mode=False, **extra)
        sys.exit(self._outcome(*args, **extra))

    def _outcome(self, *args: Any, **extra: Any) -> int:
        try:
            code = super().main(*args, standalone_mode=False, **extra)
        except FarhandError as error:
            _say(str(error))
            return error.exit_code
        except click.ClickException as error:
            error.show()
            return error.exit_code
        except (click.Abort, KeyboardInterrupt):
            _say("interrupted")
            return INTERRUPTED
        except BrokenPipeError:
            # Whoever read our output has seen enough; Python must not complain about it at exit.
            sys.stdout = None
            return 0
        return code if isinstance(code, int) else 0


def _say(sentence: str) -> None:
    click.echo(f"farhand: {sentence}", err=True)


def finish(code: int) -> NoReturn:
    """End the command with an exit code."""
    raise click.exceptions.Exit(code)


@click.command(cls=Program, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="farhand")
def main() -> None:
    """Run Python flows here, or on any machine that dials in."""
