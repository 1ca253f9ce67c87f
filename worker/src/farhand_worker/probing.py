"""Asks a service how it is, on its own machine, and tells apart the ways in which it may not be well."""

from __future__ import annotations

import asyncio
import contextlib
from typing import NamedTuple, Optional


class Unwell(NamedTuple):
    """Why a service is not healthy: the reason as a word, and in words."""

    reason: str
    message: str


NOT_HTTP = "answered what is no HTTP"


async def unwell(host: str, port: int, path: str, timeout_s: float) -> Optional[Unwell]:
    """None when ``path`` answers 200."""
    try:
        status = await asyncio.wait_for(_status(host, port, path), timeout_s)
    except asyncio.TimeoutError:  # noqa: UP041 - another class before 3.11
        return Unwell("health_timeout", f"{path} did not answer within {timeout_s:g} s")
    except ConnectionRefusedError:
        return Unwell("health_refused", f"port {port} refuses connections")
    except (OSError, EOFError, ValueError) as error:
        return Unwell("health_refused", f"{path} did not answer: {error or type(error).__name__}")
    return None if status == "200" else Unwell("health_status", f"{path} {status_text(status)}")


def status_text(status: str) -> str:
    """What an answer that is not 200 is called."""
    return f"answered {status}" if status else NOT_HTTP


async def _status(host: str, port: int, path: str) -> str:
    reader, writer = await asyncio.open_connection(host, port)
    try:
        named = f"[{host}]" if ":" in host else host
        head = f"GET {path} HTTP/1.1\r\nHost: {named}:{port}\r\nConnection: close\r\nAccept: */*\r\n\r\n"
        writer.write(head.encode("ascii", "replace"))
        await writer.drain()
        words = (await reader.readline()).decode("latin-1").split(None, 2)
        return words[1] if len(words) > 1 and words[0].startswith("HTTP/") else ""
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()
