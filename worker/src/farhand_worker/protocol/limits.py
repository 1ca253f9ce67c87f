"""What both sides go by: versions, sizes, words, and the times that the server gives."""

from __future__ import annotations

from dataclasses import dataclass, fields

VERSION = 1
"""The version this code speaks best."""

SUPPORTED = (1, 1)
"""The lowest and the highest version this code speaks."""

FRAME_BYTES_MAX = 1024 * 1024 + 64 * 1024
"""No frame is larger; a larger one closes the session."""

INLINE_BYTES_MAX = 64 * 1024
"""A value whose encoded text is larger becomes a blob."""

BATCH_BYTES = 64 * 1024
"""An agent closes a batch of events at this size (one event may be larger)."""

AHEAD_MAX = 16
"""So many jobs wait on one slot behind the one that runs, at most."""

SPOOL_BYTES_MAX = 256 * 1024 * 1024
"""Unacknowledged bytes a job may hold; beyond them log lines are dropped and counted."""

ENGINE = "engine"
AGENT = "agent"

IMPORT = "import"
"""The kind of a job that only asks whether a module can be imported; it takes no slot."""

SERVICE = "service"
"""The kind of a job that is a server process, kept until it is told to stop; it takes no slot."""

TUNNEL_HEADER = "farhand-tunnel"
"""In the handshake of a connection that is no session: the id of the `Tunnel` that asked for it."""

TUNNEL_BYTES = 32 * 1024
"""So much goes in one frame of a tunnel."""


class ProtocolViolation(Exception):
    """The peer sent something that is not in this protocol."""

    code = "protocol_violation"


@dataclass(frozen=True)
class Times:
    """The clockwork both sides share; the server's settings, sent in `Welcome`.

    ``behind_s`` is how long the one that has a slot may take before those that wait behind it are given back.
    """

    heartbeat_s: float = 3.0
    lease_s: float = 15.0
    margin_s: float = 3.0
    reattach_s: float = 60.0
    outage_s: float = 600.0
    handoff_s: float = 5.0
    grace_s: float = 10.0
    lost_s: float = 5.0
    behind_s: float = 0.1

    def scaled(self, factor: float) -> Times:
        """The same clockwork, faster (factor < 1), but for ``behind_s``; fault tests run at a tenth."""
        faster = {f.name: getattr(self, f.name) * factor for f in fields(self)}
        return Times(**{**faster, "behind_s": self.behind_s})
