"""What the engine of an attempt asks for: files of this agent, everything else of the server."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path
from typing import Any, Callable, Coroutine, Dict, Optional, Sequence, Set, Tuple

from .blobs import NotFetched
from .engine import Engine
from .host import Host
from .protocol import Assign, Reply, Request
from .transfer import Claim

Header = Dict[str, Any]

_SOON_HERE_BYTES_MAX = 16 * 1024 * 1024
"""A larger argument is not fetched before its job's turn, which may come on another machine, and no engine
waits for it before it is given the job."""


class Asking:
    """The questions of one attempt. ``engine`` is who gets the answers, while there is one."""

    def __init__(self, host: Host, assign: Assign, claim: Claim) -> None:
        self._host = host
        self._assign = assign
        self._claim = claim
        self.engine: Optional[Engine] = None
        self._requests: Dict[str, Tuple[Any, Request]] = {}
        self._named: Set[str] = set()
        self._coming: Dict[str, asyncio.Task[None]] = {}
        self._at_hand: Dict[str, Path] = {}
        self._tasks: Set[asyncio.Task[None]] = set()

    def ask(self, header: Header) -> None:
        """A request of the engine."""
        _WANTED.get(str(header.get("kind")), Asking._ask_server)(self, header)

    def reply(self, message: Reply) -> None:
        """The server's answer to a request."""
        asked = self._requests.pop(message.id, None)
        if asked is None:
            return
        if message.error is not None:
            self._answer(asked[0], error=message.error, code=message.code)
            return
        body = message.body or {}
        if asked[1].kind == "secret" and self.engine is not None:
            self.engine.hide(str(body.get("value", "")))
        self._answer(asked[0], body=body)

    def ask_again(self) -> None:
        """A new session: what was asked and not answered is asked again."""
        for _, request in self._requests.values():
            self._host.send(request)

    def fetch_value(self, value: Any) -> None:
        """Fetch what a Value of the server names before the engine asks for it, which it will."""
        digest = value.get("digest") if isinstance(value, dict) else None
        if isinstance(digest, str) and digest not in self._named:
            self._named.add(digest)
            coming = self._coming[digest] = self._beside(self._fetch_ahead(digest))
            coming.add_done_callback(lambda _: self._coming.pop(digest, None))

    def fetch_in_line(self, value: Any) -> None:
        """The same of the arguments of a job that waits for its turn, unless they are too large for that."""
        if isinstance(value, dict) and value.get("size", 0) <= _SOON_HERE_BYTES_MAX:
            self.fetch_value(value)

    def coming_soon(self, value: Any) -> Optional[asyncio.Task[None]]:
        """What brings a Value, fetched from now on, if that is not here and worth waiting for.

        A job that is handed over with its arguments need not ask for them, and begins when it can.
        """
        self.fetch_value(value)
        if not self._coming or not isinstance(value, dict) or value.get("size", 0) > _SOON_HERE_BYTES_MAX:
            return None
        return self._coming.get(value.get("digest", ""))

    def at_hand(self, value: Any) -> Optional[str]:
        """The path of what has been fetched of a Value; the engine need not ask for it."""
        path = self._at_hand.get(value.get("digest", "")) if isinstance(value, dict) else None
        return None if path is None else str(path)

    def value_path(self, value: Any, seen: Optional[Sequence[int]]) -> Optional[Path]:
        """The file of an outcome's value, where the server told what it is like; else it is fetched ahead."""
        digest = value.get("digest") if isinstance(value, dict) else None
        if seen is not None and isinstance(digest, str):
            path = self._host.cache.seen_nearby(digest, seen)
            if path is not None:
                self._named.add(digest)
                return path
        self.fetch_value(value)
        return None

    def close(self) -> None:
        """Nobody waits for an answer any more."""
        for task in self._tasks:
            task.cancel()

    # ------------------------------------------------------------ inside

    def _ask_server(self, header: Header) -> None:
        identity = str(header["id"])
        request = Request(
            identity, self._assign.job, self._assign.lease, str(header["kind"]), header.get("args") or {}
        )
        self._requests[identity] = (header["id"], request)
        self._host.send(request)

    async def _fetch_ahead(self, digest: str) -> None:
        with contextlib.suppress(NotFetched, OSError):  # the engine that asks for it is told
            self._at_hand[digest] = await self._host.cache.value(digest, self._claim)

    def _fetch_blob(self, header: Header) -> None:
        args = header.get("args") or {}
        self._beside(self._answer_blob(header["id"], str(args["digest"]), bool(args.get("read"))))

    async def _answer_blob(self, identity: Any, digest: str, read: bool) -> None:
        cache, claim, named = self._host.cache, self._claim, digest in self._named
        try:
            path = await (cache.value(digest, claim) if read and named else cache.blob(digest, claim, named))
        except Exception as error:  # noqa: BLE001 - whatever it was, the engine waits for an answer
            known = isinstance(error, (NotFetched, OSError))
            self._answer(identity, error=str(error) if known else repr(error))
        else:
            self._answer(identity, body={"path": str(path)})

    def _beside(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def _answer(self, identity: Any, **answer: Any) -> None:
        if self.engine is not None:
            self.engine.channel.send("reply", id=identity, **answer)


_WANTED: Dict[str, Callable[[Asking, Header], None]] = {"blob": Asking._fetch_blob}  # pyright: ignore[reportPrivateUsage]
