"""What names may be, and the names that are farhand's own."""

from __future__ import annotations

from typing import Any

NAME_PATTERN = r"[a-z0-9][a-z0-9._-]{0,62}"

RESERVED_NAMES = frozenset({"server", "any", "worker"})

LOCAL_WORKER = "server"
"""The name of the server's own processors."""

SERVICE = "service"
"""The kind of a service's job, and the origin of the row that its jobs and lines belong to."""

DECLARED = "(declared)"
"""The project of flows that were put as documents; no project's own name reads like it."""

Json = dict[str, Any]
