"""The worker's program as one file: sources only, and the same code gives the same bytes."""

from __future__ import annotations

import io
import zipfile

from farhand.engine import program


def test_the_same_code_gives_the_same_bytes() -> None:
    assert program.build() == program.build() == program.program().content


def test_it_holds_the_worker_and_its_one_package_as_sources_with_the_licence() -> None:
    content = program.build()
    assert content.startswith(b"#!/usr/bin/env python3\n")
    names = zipfile.ZipFile(io.BytesIO(content)).namelist()
    assert names == sorted(names)
    assert {
        "__main__.py",
        "farhand_worker/agent.py",
        "farhand_worker/protocol/__init__.py",
        "farhand_worker/warden.py",
        "websockets/asyncio/client.py",
    } <= set(names)
    assert {name.split("/")[0] for name in names} == {"__main__.py", "farhand_worker", "websockets"}
    others = [name for name in names if not name.endswith(".py")]
    assert len(others) == 1
    assert others[0].startswith("websockets/LICENSE")


def test_it_is_small() -> None:
    assert len(program.build()) < 600_000
