"""One service in memory, which is healthy until it is stopped."""

from __future__ import annotations

from dataclasses import replace

from farhand.engine.hosting import ServiceStatus
from farhand.errors import NotFound
from farhand.model import Ask, Attempt, LogLine, Page, Service, ServiceSpec


class FakeHosting:
    """The service ``llm``."""

    def __init__(self) -> None:
        spec = ServiceSpec(("serve", "{port}"), 8000)
        self.service = Service(
            "llm", "default", ("train",), spec, Ask(slots=0), state="healthy", job="j", port=8000
        )

    async def list(self) -> list[ServiceStatus]:
        return [await self.get("llm")]

    async def get(self, name: str) -> ServiceStatus:
        if name != self.service.name:
            raise NotFound(f"there is no service {name!r}")
        return ServiceStatus(self.service, "http://gpu:8000" if self.service.state == "healthy" else "")

    async def start(self, name: str) -> ServiceStatus:
        await self.get(name)
        self.service = replace(self.service, state="degraded", reason="starting", job="k")
        return await self.get(name)

    async def stop(self, name: str) -> ServiceStatus:
        await self.get(name)
        self.service = replace(self.service, state="stopped", reason="stopped", job=None)
        return await self.get(name)

    async def logs(self, name: str, after: int, limit: int) -> Page[LogLine]:
        return Page([LogLine(1, 5.0, "listening", "stdout", "info", None, 1)] if after < 1 else [])

    async def last_line(self, name: str) -> int:
        return 1

    async def attempts(self, name: str) -> list[Attempt]:
        return []
