"""``python -m farhand.sdk.saving``: checks the document of a declared flow, and says what it makes of it.

The server runs this as a child, so that no document, however odd, takes the time of its loop. On stdin comes
``{"name", "document"}``, on stdout goes ``{"mistakes": […]}`` or the flow as inspection describes one, with
the files of its bundle. No source is compiled or run here.
"""

from __future__ import annotations

import json
import sys
from typing import Any, Dict

from farhand.errors import InvalidDocument

from . import declared, documents
from .documents import Document
from .inspection import described

Given = Dict[str, Any]


def answer(name: str, given: Any) -> Given:
    """What is to be said of a document."""
    try:
        document = documents.read(given)
    except InvalidDocument as error:
        return {"message": str(error), **error.details}
    flow = declared.flow_of(document, name)
    return {
        "flow": described(flow, ""),
        "files": files_of(document, name, given),
        "schedules": [planned.described() for planned in document.schedules],
    }


_FLOW = """\
from farhand.sdk.declared import flow_beside

flow = flow_beside(__file__, {name!r})
"""
_CALL = """\
from farhand.sdk.declared import node_beside

node = node_beside(__file__, {node!r})
"""


def files_of(document: Document, name: str, given: Any) -> Dict[str, str]:
    """The bundle: a package with the document, its sources, and a module for each job."""
    files = {
        "__init__.py": "",
        declared.DOCUMENT: json.dumps(given, indent=1, sort_keys=True) + "\n",
        "flow.py": _FLOW.format(name=name),
    }
    for number, node in enumerate(document.nodes):
        if node.service is not None:
            continue  # what it runs is not of this flow's making
        stem = declared.stem(number, node.member.id)
        files[f"node_{stem}.py"] = node.source
        files[f"call_{stem}.py"] = _CALL.format(node=node.member.id)
    return {f"{declared.PACKAGE}/{file}": text for file, text in files.items()}


def main() -> None:
    """Answer what is asked on stdin."""
    asked = json.load(sys.stdin)
    json.dump(answer(asked["name"], asked["document"]), sys.stdout)


if __name__ == "__main__":
    main()
