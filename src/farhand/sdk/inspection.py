"""``python -m farhand.sdk.inspection ROOT``: the flows of a project, as JSON documents on stdout.

The server runs this as a child, so that it never imports user code itself. What is asked for comes as JSON
on stdin: ``include`` (globs), ``inspect_s`` (how long a module may take), ``known`` (file → version, for
modules that need not be imported again). Each line of stdout is a whole document. The last one is final; an
earlier one is written when some module takes long, so that the others need not wait for it. What modules
print goes to stderr.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any, Dict, Iterator, List, Tuple

from .closure import Source, Tree, digests_of, module_name, version_of
from .flows import Flow
from .fresh import import_from_sources
from .importcheck import not_included, project_files
from .importing import Document, Importing, failure
from .loading import import_project_module, import_roots

PATIENCE_S = 3.0
"""After so long without an outcome, what is known so far is told."""


def inspect(root: Path, asked: Document) -> Iterator[Document]:
    """What is in ``root``: flows, errors, files. The last document is final."""
    tree = Tree(root, asked.get("include", ()))
    sources, errors = _sources(tree)
    parts = {tree.name(source.path): tree.part(source) for source in sources}
    digests = digests_of(root, [name for part in parts.values() for name in part])
    versions = {file: version_of(part, digests) for file, part in parts.items()}
    known: Dict[str, str] = asked.get("known", {})
    unchanged = [file for file, version in versions.items() if known.get(file) == version]
    fresh = [source for source in sources if tree.name(source.path) not in unchanged]
    files, left_out = tree.files(sources)
    flows: List[Document] = []
    importing = Importing(
        root, fresh, lambda source, file: _flows_of(root, source, file, parts[file]), asked["inspect_s"]
    )

    def document(pending: List[str]) -> Document:
        slow = [{"file": file, "error": "is still being imported"} for file in pending]
        return {
            "flows": flows, "errors": errors + slow, "files": files, "left_out": left_out,
            "parts": parts, "versions": versions, "unchanged": unchanged,
        }  # fmt: skip

    told: List[str] = []
    for outcome in importing.outcomes(PATIENCE_S):
        if outcome is not None:
            flows.extend(outcome[1])
            errors.extend(outcome[2])
        elif importing.pending != told:
            told = importing.pending
            yield document(told)
    yield document([])


def _sources(tree: Tree) -> Tuple[List[Source], List[Document]]:
    """The project's modules that use farhand, and what is wrong with those that cannot be read."""
    sources: List[Source] = []
    errors: List[Document] = []
    for path in tree.python_files():
        try:
            if b"farhand" not in path.read_bytes():
                continue
            source = Source(path, module_name(tree.root, path), path.name == "__init__.py")
        except (SyntaxError, ValueError, OSError, RecursionError, MemoryError) as error:
            errors.append(failure(tree.name(path), error))
            continue
        if source.uses_farhand:
            sources.append(source)
    if tree.unscanned:
        errors.append({"file": tree.unscanned, "error": "too many files; nothing was read from here on"})
    return sources, errors


def _flows_of(root: Path, source: Source, file: str, part: List[str]) -> List[Document]:
    """The flows that a module defines; those it only imports belong to theirs."""
    before = set(sys.modules)
    module = import_project_module(source.module, root)
    strays = sorted(set(project_files(str(root), before)) - set(part))
    if strays:
        raise not_included(strays)
    found = [value for value in vars(module).values() if isinstance(value, Flow)]
    own = {id(flow): flow for flow in found if flow.function.__module__ == source.module}
    return [described(flow, file) for flow in own.values()]


def described(flow: Flow[Any], file: str) -> Document:
    return {
        "name": flow.name,
        "entry": flow.entry,
        "description": flow.description,
        "schema": flow.parameters.schema(),
        "ask": flow.options.ask(),
        "settings": flow.settings(),
        "tags": flow.options.tags,
        "schedules": [schedule.described() for schedule in flow.schedules],
        "services": [service.described() for service in flow.services],
        "file": file,
        **_graph_of(flow),
    }


def _graph_of(flow: Flow[Any]) -> Document:
    """The document of a flow that is declared."""
    if flow.graph is None:
        return {}
    from .assembling import described as described_graph  # noqa: PLC0415 - for those who declare flows

    return {"document": described_graph(flow.graph)}


def _leave(_number: int, _frame: Any) -> None:
    sys.exit(143)  # which ends the children, on the way out


def main() -> None:
    """Inspect the directory named on the command line."""
    signal.signal(signal.SIGTERM, _leave)
    asked = json.load(sys.stdin)
    root = Path(sys.argv[1]).resolve()
    os.chdir(root)
    with open(os.devnull) as nothing:
        os.dup2(nothing.fileno(), 0)
    output = os.fdopen(os.dup(1), "w")
    os.set_inheritable(output.fileno(), False)
    os.dup2(2, 1)
    sys.stdout = sys.stderr
    sys.path[:] = [path for path in sys.path if path not in ("", str(root))]
    sys.path[:0] = import_roots(root)
    import_from_sources(str(root))
    sys.argv[:] = [sys.argv[0]]
    for document in inspect(root, asked):
        output.write(json.dumps(document) + "\n")
        output.flush()


if __name__ == "__main__":
    main()
