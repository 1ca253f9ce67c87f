"""Servers on loopback for what farhand tells others: webhooks by HTTP, letters by SMTP."""

from __future__ import annotations

import asyncio
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class Web(ThreadingHTTPServer):
    """Keeps what it gets by POST; answers with ``statuses`` in their order, then with 204."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Hooked)
        self.got: list[tuple[str, str | None, Any]] = []
        self.statuses: list[int] = []
        self.url = f"http://127.0.0.1:{self.server_port}/hook"
        self._thread = threading.Thread(target=self.serve_forever)
        self._thread.start()

    def close(self) -> None:
        """End, and wait for the end."""
        self.shutdown()
        self._thread.join()
        self.server_close()


class _Hooked(BaseHTTPRequestHandler):
    server: Web  # pyright: ignore[reportIncompatibleVariableOverride]

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.got.append((self.path, self.headers["Content-Type"], body))
        statuses = self.server.statuses
        self.send_response(statuses.pop(0) if statuses else 204)
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:
        pass


class Mail:
    """A mail server for one test: takes every letter, or refuses every addressee, or asks to sign in."""

    def __init__(self, *, refuses: bool = False, wants: str = "") -> None:
        self.letters: list[tuple[str, list[str], bytes]] = []
        self._refuses, self._wants, self._signed_in = refuses, wants, ""
        self._loop = asyncio.new_event_loop()
        self._server = self._loop.run_until_complete(asyncio.start_server(self._serve, "127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"220 here\r\n")
        sender, to = "", list[str]()
        while line := (await reader.readline()).decode().strip():
            word = line.split(":")[0].split()[0].upper() if line.upper().startswith("A") else line[:4].upper()
            if word == "EHLO":
                writer.write(b"250-here\r\n250 AUTH PLAIN\r\n" if self._wants else b"250 here\r\n")
            elif word == "AUTH":
                self._signed_in = line.split()[2]
                writer.write(b"235 in\r\n" if self._signed_in == self._wants else b"535 no\r\n")
            elif word == "MAIL":
                sender = line
                writer.write(b"250 ok\r\n")
            elif word == "RCPT":
                to.append(line.partition("<")[2].rstrip(">"))
                writer.write(b"550 nobody\r\n" if self._refuses else b"250 ok\r\n")
            elif word == "DATA":
                writer.write(b"354 go on\r\n")
                letter = await reader.readuntil(b"\r\n.\r\n")
                self.letters.append((sender, to, letter))
                writer.write(b"250 taken\r\n")
            elif word == "QUIT":
                writer.write(b"221 bye\r\n")
                break
            else:
                writer.write(b"250 ok\r\n")
        writer.close()

    def close(self) -> None:
        async def end() -> None:
            self._server.close()
            await asyncio.sleep(0.05)

        asyncio.run_coroutine_threadsafe(end(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
