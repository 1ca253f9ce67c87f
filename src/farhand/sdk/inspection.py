"""``python -m farhand.sdk.inspection ROOT``: the flows of a project, as one JSON document on stdout.

The server runs this as a child, so that it never imports user code itself. What modules print on the way
goes to stderr. A module that cannot be imported is an entry of ``errors`` and hurts no other.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import traceback
from pathlib import Path
from typing import Any, Dict, List

from .closure import Source, module_name, python_files, reached, with_neighbours
from .flows import Flow
from .loading import import_roots

Document = Dict[str, Any]


def inspect(root: Path) -> Document:
    """Flows, errors and files of the project in ``root``. Imports its modules into this process."""
    sys.path[:0] = import_roots(root)
    flows: List[Document] = []
    errors: List[Document] = []
    sources: List[Source] = []
    for path in python_files(root):
        name = str(path.relative_to(root))
        try:
            source = Source(path, module_name(root, path), path.name == "__init__.py")
            if not source.uses_farhand:
                continue
            found = _flows_of(source, name)
        except BaseException as error:  # noqa: BLE001 - a module may raise anything, SystemExit too
            errors.append(_failure(name, error))
            continue
        sources.append(source)
        flows.extend(found)
    files, left_out = with_neighbours(root, reached(root, sources))
    return {"flows": flows, "errors": errors, "files": files, "left_out": left_out}


def _flows_of(source: Source, file: str) -> List[Document]:
    """The flows that a module defines; those it only imports belong to theirs."""
    module = importlib.import_module(source.module)
    found = [value for value in vars(module).values() if isinstance(value, Flow)]
    own = {id(flow): flow for flow in found if flow.function.__module__ == source.module}
    return [_described(flow, file) for flow in own.values()]


def _described(flow: Flow[Any], file: str) -> Document:
    return {
        "name": flow.name,
        "entry": flow.entry,
        "description": flow.description,
        "schema": flow.parameters.schema(),
        "ask": flow.options.ask(),
        "settings": flow.settings(),
        "tags": flow.options.tags,
        "file": file,
    }


def _failure(file: str, error: BaseException) -> Document:
    text = "".join(traceback.format_exception(type(error), error, error.__traceback__))
    return {"file": file, "error": f"{type(error).__name__}: {error}", "traceback": text}


def main() -> None:
    """Inspect the directory named on the command line."""
    root = Path(sys.argv[1]).resolve()
    os.chdir(root)
    output = os.dup(1)
    os.dup2(2, 1)
    sys.stdout = sys.stderr
    sys.path[:] = [path for path in sys.path if path not in ("", str(root))]
    sys.argv[:] = [sys.argv[0]]
    text = json.dumps(inspect(root))
    with os.fdopen(output, "w") as stream:
        stream.write(text)
        stream.flush()
    os._exit(0)  # threads and exit handlers of user modules have no say in when this ends


if __name__ == "__main__":
    main()
