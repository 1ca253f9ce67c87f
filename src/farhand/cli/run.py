"""``farhand run``: a flow of a file, run here and recorded as a script's run."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import sys
import time
from collections.abc import Generator, Mapping
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import click

from ..errors import FarhandError, NotFound, Usage
from .options import home_option, json_option, params_option
from .output import print_json
from .params import read_params
from .program import finish
from .progress import shown

if TYPE_CHECKING:
    from ..sdk import Flow


@click.command()
@click.argument("what", metavar="FILE[:FLOW]")
@params_option
@click.option("--no-progress", is_flag=True, help="Do not show how the run comes along.")
@home_option
@json_option
def run(what: str, given: tuple[str, ...], no_progress: bool, home: Path | None, as_json: bool) -> None:
    """Run a flow here, in this process.

    FILE is a Python file; FLOW may be left out when the file has one flow. The run is recorded in the
    home, where a server shows it. How it comes along is shown on stderr: drawn on a terminal, a plain line
    now and then elsewhere. Exit 1 when the flow fails.
    """
    from ..sdk.script import run_here

    if home is not None:
        os.environ["FARHAND_HOME"] = str(home.expanduser().absolute())
    with _output_on_stderr(as_json):
        flow = find_flow(what)
        parameters = flow.parameters
        bound = parameters.bind_params(read_params(parameters.schema(), given))
        began = time.monotonic()
        try:
            with shown(flow.name, not (no_progress or as_json)) as watch:
                value = run_here(flow, bound, watch)
        except (Exception, SystemExit) as error:  # noqa: BLE001 - a flow may raise anything; all of it is told
            _tell_failure(flow, error, time.monotonic() - began)
            outcome: dict[str, Any] = {"state": "failed", "error": f"{type(error).__name__}: {error}"}
        else:
            outcome = {"state": "completed", "result": value}
            click.echo(f"{flow.name} completed in {time.monotonic() - began:.2f} s", err=True)
    _tell(outcome, as_json)
    finish(0 if outcome["state"] == "completed" else 1)


def find_flow(what: str) -> Flow[Any]:
    """The flow that ``FILE[:FLOW]`` names. Raises `Usage` or `NotFound`, saying what there is."""
    file, name = _split(what)
    module = load(file)
    found = _flows_of(module)
    if name is not None:
        if name not in found and _is_task(getattr(module, name, None)):
            raise Usage(f"{name} is a task; what runs is a flow, which calls it")
        if name not in found:
            raise NotFound(f"{file} has no flow {name!r}; it has: {', '.join(found) or 'none'}")
        return found[name]
    if not found:
        raise NotFound(f"{file} has no flow; decorate a function with @flow")
    if len(found) > 1:
        raise Usage(f"{file} has several flows; name one: {', '.join(f'{file}:{flow}' for flow in found)}")
    return next(iter(found.values()))


def _split(what: str) -> tuple[Path, str | None]:
    if Path(what).is_file():
        return Path(what), None
    file, colon, name = what.rpartition(":")
    if colon and Path(file).is_file():
        return Path(file), name
    path = Path(file if colon else what)
    if path.is_dir():
        raise Usage(f"{path} is a directory; name a Python file in it, as in {path / 'flows.py'}:FLOW")
    raise Usage(f"there is no file {path}")


def load(file: Path) -> ModuleType:
    """The file as a module, with its directory on the path as for ``python FILE``."""
    from ..sdk.eager import only_reading

    file = file.absolute()
    spec = importlib.util.spec_from_file_location(file.stem, file)
    if spec is None or spec.loader is None:
        raise Usage(f"{file} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.path.insert(0, str(file.parent))
    sys.modules[file.stem] = module
    try:
        only_reading(file.name, spec.loader.exec_module, module)
    except FarhandError:
        raise
    except SystemExit as error:
        raise Usage(f"{file} cannot be imported: it ends the process (SystemExit: {error})") from error
    except Exception as error:
        _print_traceback(error, file)
        raise Usage(f"{file} cannot be imported: {type(error).__name__}: {error}") from error
    return module


def _flows_of(module: ModuleType) -> Mapping[str, Flow[Any]]:
    from ..sdk import Flow

    flows: list[Flow[Any]] = [item for item in vars(module).values() if isinstance(item, Flow)]
    return {flow.name: flow for flow in flows if flow.function.__module__ == module.__name__}


def _is_task(value: object) -> bool:
    from ..sdk import Task

    return isinstance(value, Task)


def _tell(outcome: dict[str, Any], as_json: bool) -> None:
    if not as_json:
        if outcome.get("result") is not None:
            click.echo(repr(outcome["result"]))
        return
    try:
        print_json(outcome)
    except (TypeError, ValueError):
        # Not everything a flow returns has a form in JSON.
        print_json(outcome | {"result": repr(outcome["result"])})


def _tell_failure(flow: Flow[Any], error: BaseException, seconds: float) -> None:
    code = getattr(flow.function, "__code__", None)
    _print_traceback(error, Path(code.co_filename) if code else None)
    click.echo(f"{flow.name} failed after {seconds:.2f} s", err=True)


def _print_traceback(error: BaseException, file: Path | None) -> None:
    """The traceback from the user's own code on; what called it is ours and says nothing."""
    from ..sdk.encoding import traceback_of

    at = error.__traceback__
    while at is not None and file is not None and Path(at.tb_frame.f_code.co_filename) != file:
        at = at.tb_next
    # A file that cannot be compiled has no frame of its own; its error names the line.
    told = error.with_traceback(
        at if at is not None or isinstance(error, SyntaxError) else error.__traceback__
    )
    click.echo(traceback_of(told), err=True, nl=False)


@contextlib.contextmanager
def _output_on_stderr(wanted: bool) -> Generator[None]:
    """While a flow runs under ``--json``: what it and its children print goes to stderr."""
    if not wanted:
        yield
        return
    sys.stdout.flush()
    kept = os.dup(1)
    os.dup2(2, 1)
    try:
        yield
    finally:
        sys.stdout.flush()
        os.dup2(kept, 1)
        os.close(kept)
