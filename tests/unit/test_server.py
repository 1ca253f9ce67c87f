"""What the composition root decides by itself."""

from __future__ import annotations

import socket

import pytest

from farhand.errors import Usage
from farhand.server import bind, dialled


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
