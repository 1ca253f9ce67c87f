"""What an engine is told of a job that it is handed."""

from __future__ import annotations

from typing import Any, Dict

from .host import Host
from .preparing import Preparation
from .protocol import SPOOL_BYTES_MAX, Assign
from .reports import Reports


def reports_of(assign: Assign, host: Host) -> Reports:
    """What there will be to say of it; a disk that does not take that is trouble for the whole worker."""
    bytes_max = host.limits.get("spool_bytes", SPOOL_BYTES_MAX)
    state = host.state
    return Reports(state.spool, state.outgoing, assign.job, assign.lease, bytes_max, host.disk.note)


def job_of(
    assign: Assign, host: Host, prepared: Preparation, reports: Reports, grace_s: float
) -> Dict[str, Any]:
    """The fields of a ``job`` frame."""
    return {
        "job": assign.job,
        "lease": assign.lease,
        "attempt": assign.attempt,
        "run": assign.run,
        "kind": assign.kind,
        "flow": assign.flow,
        "entry": assign.entry,
        "args": assign.args,
        "key": assign.key,
        "bundle_dir": str(prepared.bundle),
        "manifest": str(prepared.manifest) if prepared.manifest else None,
        "checkout": str(host.checkout.root) if host.checkout else None,
        "cwd": str(prepared.scratch or host.cwd),
        "shared_paths": host.shared_paths,
        "spool": reports.engine_path,
        "blobs": reports.outgoing,
        "kept": assign.kept,
        "timeout_s": assign.timeout_s,
        "grace_s": grace_s,
        "settings": assign.settings,
        "spool_bytes_max": reports.bytes_max,
        "import_s": host.limits.get("import_s"),
        "memory_bytes_max": host.limits.get("engine_memory_bytes"),
    }
