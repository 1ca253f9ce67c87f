"""Every exception farhand raises, in one tree. The docstring says what is wrong and what to do."""

from __future__ import annotations

from typing import Any, ClassVar


class FarhandError(Exception):
    """Something went wrong inside farhand."""

    code: ClassVar[str] = "error"
    status: ClassVar[int] = 500
    exit_code: ClassVar[int] = 1

    def __init__(self, message: str = "", **details: Any) -> None:
        super().__init__(message or (type(self).__doc__ or "").splitlines()[0])
        self.details = details


# ---------------------------------------------------------------- what user code meets


class TaskFailed(FarhandError):
    """A task failed elsewhere and its own exception could not be loaded here; the text says what it was."""

    code = "task_failed"


class Cancelled(BaseException):
    """The run was cancelled. Derives from BaseException so that ``except Exception`` lets it pass."""


class TimedOut(FarhandError):
    """The call took longer than its timeout; raise the timeout or make the work smaller."""

    code = "timeout"


class SilentTooLong(TimedOut):
    """The call said nothing for longer than its silence_timeout; raise it, or log something meanwhile."""

    code = "silence"


class WorkerLost(FarhandError):
    """worker went away mid-call"""

    code = "worker_lost"


class Unplaceable(FarhandError):
    """What the call asks for is held by those that wait for it; ask for less, or for it only in the calls."""

    code = "unplaceable"


class ProcessDied(FarhandError):
    """The process of a process task ended without an outcome; the message says how."""

    code = "process_died"


class NotSupported(FarhandError):
    """This parameter is not supported yet; leave it out."""

    code = "not_supported"
    status = 422
    exit_code = 2


class NodeFailed(FarhandError):
    """A node of a declared flow failed; the message names it and says how."""

    code = "node_failed"


class NodeSkipped(FarhandError):
    """The node was not run, since one that it takes from did not end well; the message names that one."""

    code = "node_skipped"


class StreamBroken(FarhandError):
    """A stream that was read along broke off, since the node that yields it failed or was lost."""

    code = "stream_broken"


class NotDelivered(FarhandError):
    """A node of a declared flow did not return what it declares; the message names node and output."""

    code = "not_delivered"


class CannotLoad(FarhandError, ImportError):
    """The source of a node cannot be loaded on the machine that was to run it; the message says why."""

    code = "cannot_load"


class InvalidDocument(FarhandError):
    """The document of a declared flow has mistakes; each is named with its node, and nothing was saved."""

    code = "invalid_document"
    status = 422
    exit_code = 2


class NotIncluded(FarhandError):
    """A file of the project was imported that its flow is not known to reach; name it under include in
    farhand.toml."""

    code = "not_included"


class NotSerializable(FarhandError):
    """The value cannot leave its process; return something that JSON or pickle can carry."""

    code = "not_serializable"


class InvalidParameters(FarhandError):
    """The parameters do not fit the flow's signature; the message names the field."""

    code = "invalid_parameters"
    status = 422
    exit_code = 2


class NotInFlow(FarhandError):
    """This works only inside a running flow or task."""

    code = "not_in_flow"


# ---------------------------------------------------------------- requests


class Usage(FarhandError):
    """The command or setting is not usable as given; the message says which and what would be."""

    code = "usage"
    status = 400
    exit_code = 2


class NotFound(FarhandError):
    """There is nothing of that name here; list what there is and try again."""

    code = "not_found"
    status = 404
    exit_code = 2


class Conflict(FarhandError):
    """The request does not fit the present state; look at it again and decide anew."""

    code = "conflict"
    status = 409
    exit_code = 3


class Changed(FarhandError):
    """It is not any more, or not yet, what If-Match says this change is based on; read it and decide anew."""

    code = "changed"
    status = 412
    exit_code = 3


class UnknownFlavor(NotFound):
    """It asks for a flavor that this server does not have; `farhand flavors set` makes one."""

    code = "unknown_flavor"


class Unauthorized(FarhandError):
    """A token is needed: send Authorization: Bearer TOKEN, or sign in by the link that serve prints."""

    code = "unauthorized"
    status = 401
    exit_code = 3


class Forbidden(FarhandError):
    """This token's role may not do that; ask the server's admin for one that may."""

    code = "forbidden"
    status = 403
    exit_code = 3


class NotInvited(Forbidden):
    """No invitation has this code; check the line, or make another with `farhand workers invite`."""

    code = "not_invited"


class NotEncrypted(Forbidden):
    """An invitation is exchanged over https, or on the server's own machine; this came over plain http."""

    code = "not_encrypted"


class NotYourArtifact(Forbidden):
    """A worker reads only what its jobs need and writes only under a live lease."""

    code = "not_your_artifact"


class DigestMismatch(FarhandError):
    """The bytes that arrived are not those of the digest; send them again."""

    code = "digest_mismatch"
    status = 422


class Unreachable(FarhandError):
    """No server answers; start one with `farhand serve`, or name it with --url."""

    code = "unreachable"
    status = 503
    exit_code = 3


class Refused(FarhandError):
    """The server refused, and no retry changes that; the message says why."""

    code = "refused"
    exit_code = 3


# ---------------------------------------------------------------- the store and the lifecycle


class ServiceUnavailable(FarhandError):
    """A service is not healthy, or cannot be reached; `farhand services show NAME` says why."""

    code = "service_unavailable"
    status = 503
    exit_code = 3


class IllegalTransition(FarhandError):
    """A record cannot go from that state to this one; somebody else moved it first."""

    code = "illegal_transition"
    status = 409
    exit_code = 3


class StaleLease(FarhandError):
    """The report's lease is missing or no longer current; whoever sent it must stop."""

    code = "stale_lease"
    status = 409
    exit_code = 3


class StoreFailed(FarhandError):
    """The store could not commit; nothing of this change was kept, so it may be tried again."""

    code = "store_failed"
    status = 503
    exit_code = 3


class StoreClosed(FarhandError):
    """The store is closed; the server is stopping."""

    code = "store_closed"
    status = 503
    exit_code = 3


class StoreLocked(FarhandError):
    """Another process owns this home; stop it, or choose another with --home."""

    code = "store_locked"
    exit_code = 3


class StoreDamaged(FarhandError):
    """The file is no store, or is damaged; restore a backup with `farhand restore`. Nothing was changed."""

    code = "store_damaged"
    exit_code = 1


class StoreTooNew(FarhandError):
    """The store was written by a newer farhand; upgrade this one. Nothing was changed."""

    code = "store_too_new"
    exit_code = 2
