"""The wire protocol between a farhand server and a worker's agent. This package is the contract.

`to_server` and `to_worker` have the messages, `events` what is reported of a job, `frames` how messages are
written, `limits` what both sides go by. All of it is imported from here.

The order of a session
----------------------
1.  The agent opens ``WS /api/v1/workers/attach`` with its token in the ``Authorization`` header and
    sends `Hello`: who it is, what it may be, and every job it still holds.
2.  The server answers `Welcome` (its times, the digest of the runtime, and for every held job either
    the last event numbers it has recorded or the news that the job is fenced) or `Refused`. A final
    refusal is one that no retry changes; the agent then ends.
3.  The agent resends what the server has not recorded, then goes on. It beats with `Heartbeat` every
    ``heartbeat_s``; each is answered at once by an `Ack` with the same number. An answered heartbeat
    is evidence dated by when it was *sent*: engines may run until ``evidence + lease_s``.
4.  `Assign` hands over one attempt of a job, with its lease. The agent answers `Accepted`, or with
    the first `Event` of that lease, within ``handoff_s`` or the server closes the session. A `Cancel`
    never overtakes its `Assign`.
    An assign may say that it waits ``behind`` another: it begins when all that were handed over before it
    for that slot have ended, or is given back before, by an `Exit` of reason ``returned``. `Recall` asks
    for that.
5.  Reports travel in `Event` frames, numbered from 1 per (job, lease, source). The server answers
    `Ack` only after the commit that holds them. What is recorded already is acknowledged whatever
    the lease is now; anything else under a lease that is not current is answered by `Fenced`, and
    the agent ends that engine.
6.  An attempt ends with exactly one final event: `Result` from the engine, or `Exit` from the agent
    when the engine ended without one. Log lines written before the end are sent before it.
7.  `Request` and `Reply` fetch what a job needs (kept outcomes, secrets, variables). `Outcome` brings
    the end of a call that the job placed elsewhere; it may come more than once and is known by its key.
8.  `Set` changes the number of slots, or has the worker take nothing new (or take work again). One that
    takes nothing new and holds nothing any more says `Drained`, once. `Probe` asks for a heartbeat at once.
9.  `Tunnel` asks for a connection to a service that this worker keeps, for whoever uses it through the
    server. The agent dials the same address once more, with the tunnel's ``id`` in the header
    ``farhand-tunnel``; what the service says goes there in binary frames, and what comes goes to the
    service, until either end closes. `NoTunnel` says why there is none.
10. `Bye` is an orderly end: the worker is offline at once. Whatever it still held is queued again.

A dropped socket ends none of this: the agent keeps its engines, reconnects and starts again at 1.

Frames are JSON texts, one message each, with a ``type`` from `MESSAGES`; a `Several` carries more, for a
peer that reads it. Unknown fields are ignored; an unknown type or a missing field is the peer's fault and
raises `ProtocolViolation`. Bodies over ``INLINE_BYTES_MAX`` travel by HTTP under their digest, before the
event that names them.

Times are seconds. Moments (``*_at``, ``at``) are seconds since the epoch, UTC.
"""

from __future__ import annotations

from ..machine import CUDA_MASK, ENGINE_ID_VARIABLE, Inventory
from .events import (
    EVENTS,
    FINAL,
    URGENT,
    Artifact,
    Blocked,
    Call,
    Checkpoint,
    Exit,
    LocalPath,
    Log,
    Metric,
    Progress,
    Result,
    ServiceState,
    Started,
    TaskBegan,
    Unblocked,
    Yielded,
)
from .frames import (
    MESSAGES,
    Several,
    as_dict,
    decode,
    decode_each,
    dumps,
    encode,
    encode_events,
    encode_several,
)
from .limits import (
    AGENT,
    AHEAD_MAX,
    BATCH_BYTES,
    ENGINE,
    FRAME_BYTES_MAX,
    IMPORT,
    INLINE_BYTES_MAX,
    SERVICE,
    SPOOL_BYTES_MAX,
    SUPPORTED,
    TUNNEL_BYTES,
    TUNNEL_HEADER,
    VERSION,
    ProtocolViolation,
    Times,
)
from .to_server import (
    Accepted,
    Bye,
    Changed,
    Drained,
    Event,
    Heartbeat,
    Held,
    Hello,
    NoTunnel,
    Request,
)
from .to_worker import (
    Ack,
    Assign,
    Cancel,
    Compare,
    Fenced,
    Hosting,
    Outcome,
    Probe,
    Proceed,
    Recall,
    Refused,
    Reply,
    Resume,
    Set,
    Tunnel,
    Welcome,
)

__all__ = [
    "AGENT",
    "AHEAD_MAX",
    "BATCH_BYTES",
    "CUDA_MASK",
    "ENGINE",
    "ENGINE_ID_VARIABLE",
    "EVENTS",
    "FINAL",
    "FRAME_BYTES_MAX",
    "IMPORT",
    "INLINE_BYTES_MAX",
    "MESSAGES",
    "SERVICE",
    "SPOOL_BYTES_MAX",
    "SUPPORTED",
    "TUNNEL_BYTES",
    "TUNNEL_HEADER",
    "URGENT",
    "VERSION",
    "Accepted",
    "Ack",
    "Artifact",
    "Assign",
    "Blocked",
    "Bye",
    "Call",
    "Cancel",
    "Changed",
    "Checkpoint",
    "Compare",
    "Drained",
    "Event",
    "Exit",
    "Fenced",
    "Heartbeat",
    "Held",
    "Hello",
    "Hosting",
    "Inventory",
    "LocalPath",
    "Log",
    "Metric",
    "NoTunnel",
    "Outcome",
    "Probe",
    "Proceed",
    "Progress",
    "ProtocolViolation",
    "Recall",
    "Refused",
    "Reply",
    "Request",
    "Result",
    "Resume",
    "ServiceState",
    "Set",
    "Several",
    "Started",
    "TaskBegan",
    "Times",
    "Tunnel",
    "Unblocked",
    "Welcome",
    "Yielded",
    "as_dict",
    "decode",
    "decode_each",
    "dumps",
    "encode",
    "encode_events",
    "encode_several",
]
