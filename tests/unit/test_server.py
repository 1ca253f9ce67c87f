"""What the composition root decides by itself."""

from __future__ import annotations

import logging
import os
import socket
from pathlib import Path

import pytest

from farhand.errors import Usage
from farhand.logs import configure_logging
from farhand.server import bind, dialled, prepare


def test_the_listener_names_tcp_so_that_answers_are_sent_at_once() -> None:
    """asyncio turns Nagle's algorithm off only for sockets whose protocol is named."""
    with bind("127.0.0.1", 0) as listener:
        assert listener.proto == socket.IPPROTO_TCP


def test_a_port_in_use_is_refused_naming_it_and_the_option() -> None:
    with bind("127.0.0.1", 0) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(Usage, match=rf"cannot listen on 127.0.0.1:{port}: .*--port"):
            bind("127.0.0.1", port)


@pytest.mark.parametrize(
    ("host", "address"),
    [("127.0.0.1", "127.0.0.1"), ("0.0.0.0", "127.0.0.1"), ("::", "127.0.0.1"), ("::1", "[::1]")],
)
def test_the_address_printed_is_one_that_can_be_dialled(host: str, address: str) -> None:
    assert dialled(host) == address


def test_an_address_that_is_not_this_machines_is_refused_naming_the_option() -> None:
    with pytest.raises(Usage, match=r"cannot listen on 192.0.2.1:0: .*--host"):
        bind("192.0.2.1", 0)


def test_a_home_that_cannot_be_is_refused_naming_the_option(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(Usage, match=r"file/home cannot be written: Not a directory; .*--home"):
        prepare(tmp_path / "file" / "home")


def test_a_home_that_may_not_be_written_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "access", lambda path, mode: path != tmp_path)  # root may write everywhere
    with pytest.raises(Usage, match="cannot be written: Permission denied"):
        prepare(tmp_path)


def test_a_missing_home_is_made_for_its_owner_alone(tmp_path: Path) -> None:
    prepare(tmp_path / "a" / "home")
    assert (tmp_path / "a" / "home").stat().st_mode & 0o777 == 0o700


def test_a_refused_handshake_is_not_told_again_as_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    log = logging.getLogger("uvicorn.error")
    monkeypatch.setattr(log, "filters", [])
    configure_logging()

    def told(text: str) -> bool:
        return bool(log.filter(log.makeRecord(log.name, logging.ERROR, "", 0, text, (), None)))

    assert not told("ASGI callable returned without completing handshake.")
    assert told("Exception in ASGI application")
