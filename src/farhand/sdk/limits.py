"""What a script or an engine has to know of the wire protocol, here as plain values: it loads no messages.

A test holds them against `farhand_worker.protocol`.
"""

from __future__ import annotations

INLINE_BYTES_MAX = 64 * 1024
"""A value whose encoded text is larger becomes a blob."""

SPOOL_BYTES_MAX = 256 * 1024 * 1024
"""Unacknowledged bytes a job may hold; beyond them log lines are dropped and counted."""

IMPORT = "import"
"""The kind of a job that only asks whether its code can be imported."""

IMPORT_S = 300.0
"""So long a module may be imported for a call that has a time limit, where the server does not say."""
