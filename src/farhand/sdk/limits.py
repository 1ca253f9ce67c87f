"""Two limits of the wire protocol, here as plain numbers: a script need not load the messages for them.

A test holds them against `farhand_worker.protocol`.
"""

from __future__ import annotations

INLINE_BYTES_MAX = 64 * 1024
"""A value whose encoded text is larger becomes a blob."""

SPOOL_BYTES_MAX = 256 * 1024 * 1024
"""Unacknowledged bytes a job may hold; beyond them log lines are dropped and counted."""
