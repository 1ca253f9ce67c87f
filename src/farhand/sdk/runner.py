"""One job, from its frame to its result line."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Any, Callable, Dict, List, Optional

from farhand.errors import Cancelled, NotFound, NotSerializable, StreamBroken
from farhand_worker.manifest import read_manifest

from . import encoding, events, loading, telling
from .calls import Call
from .channel import Channel
from .checkpoints import Ledger
from .context import STOPPED, Frame, Inner, Run, enter, leave, set_root
from .deadlines import Limits
from .flows import Flow
from .futures import Future
from .importcheck import check_import
from .interrupts import interrupter, is_interruption
from .limits import IMPORT, IMPORT_S, SPOOL_BYTES_MAX
from .native import native_output
from .output import streams
from .placing import Placer
from .pool import Pool
from .restore import Snapshot, end_descendants, threads_remain
from .script import without_secrets
from .sharing import Sharing
from .spool import Spool
from .steps import Step

Header = Dict[str, Any]
Result = Dict[str, Any]

LOOP_S = 2.0
"""So long after its timeout the body of an ``async def`` flow is interrupted as if it were plain code."""


class _Unfit(Exception):
    """The job cannot begin in this environment, for the reason it holds; its cause says more."""


class Job:
    """One job that an engine executes. ``run()`` in the main thread, the rest from the channel's.

    ``root`` is the directory of its bundle; ``where`` is what `Started` says of this process.
    """

    def __init__(self, header: Header, channel: Channel, root: Path, where: str) -> None:
        self._where = where
        self._header = header
        self._channel = channel
        spool_bytes_max = header.get("spool_bytes_max") or SPOOL_BYTES_MAX
        self.spool = Spool(
            header["spool"],
            header["blobs"],
            channel.send,
            channel.request,
            spool_bytes_max,
            armed=header.get("armed", True),
            ring=channel.ring if header.get("unanswered") else None,
        )
        settings = self._settings = header.get("settings") or {}
        self._run = Run(
            header["run"],
            header["flow"],
            self.spool,
            attempt=header.get("attempt", 1),
            ledger=Ledger(in_order=bool(settings.get("in_order"))),
            grace_s=header.get("grace_s") or 10.0,
            import_s=header.get("import_s") or IMPORT_S,
            disposable=True,
            ask=channel.request,
            called=settings.get("called"),
            own_key=header.get("key") or "",
            along=settings.get("along"),
        )
        self._started_at = time.time()
        inner = settings.get("nested")
        self._frame = Frame(
            self._run, header.get("key") or "", header["flow"], None, Inner(**inner) if inner else None
        )
        self._retryable = True
        self._spoilt = self._imports = False
        self._placer: Optional[Placer] = None
        self._run.equip = self._equip
        self._run.place = self._place
        self._run.ask_later = self._ask
        self._root = root
        shared = header.get("shared_paths")
        self._sharing = None if shared is None else Sharing(self._frame, shared)
        self._run.local_path = None if self._sharing is None else self._sharing.look

    @property
    def placer(self) -> Placer:
        """Its calls elsewhere. There is one with the pool of its calls, of which many jobs make none."""
        placer = self._placer or (self._run.pool and self._placer)
        assert placer is not None  # made before anybody has the pool
        return placer

    def _equip(self, pool: Pool) -> None:
        self._placer = Placer(self._run, pool, self._tell_blocked, self._channel)

    def _place(self, made: Call, future: Future[Any], awaited: bool) -> None:
        self.placer.place(made, future, awaited)

    def _ask(self, kind: str, args: Header, arrived: Callable[[Header], None]) -> None:
        self.placer.ask(kind, args, arrived)

    @property
    def stopped(self) -> bool:
        """Whether the engine was told to stop without a result."""
        return self._run.cancelled == STOPPED

    @property
    def cancel_reason(self) -> Optional[str]:
        """Why the job is being cancelled, if it is."""
        return self._run.cancelled

    def heard(self) -> None:
        """The agent has seen output of the job that did not come through this process's streams."""
        self._run.heard()

    def cancel(self, reason: str) -> None:
        """Raise `Cancelled` in the job's code."""
        self._run.cancel(reason)

    def run(self, before: Snapshot) -> bool:
        """Execute, write the result, make the process what it was; whether the engine must be retired."""
        token = enter(self._frame)
        set_root(self._frame)
        try:
            self._imports = self._must_import()
            self._started(importing=self._imports)
            result, digests = self._result()
        finally:
            interrupter.close_all()
            leave(token)
        if self._run.calls:
            self._end_calls(failed=result["state"] != "completed")
        streams.finish_all()
        native_output.flush()
        alone = end_descendants() and not threads_remain(before.threads) and not self._run.abandoned
        if not self.stopped:
            self._tell(result, digests, alone)
        self.spool.close()
        restored = before.restore()
        streams.put_in_place()
        set_root(None)
        return self._spoilt or not (alone and restored)

    def _tell(self, result: Result, digests: List[str], alone: bool) -> None:
        """Write the result. Of a job of which nothing goes on it is told before this process is put back."""
        if result["state"] == "completed":
            line = events.completed(result["at"], result["value"], digests)
        else:
            line = events.line("result", result, digests)
        self.spool.end(line)
        if alone and self._header.get("tell_result"):
            self._channel.send("result")

    def _tell_blocked(self, blocked: bool) -> None:
        """The agent listens for silence as well."""
        self._channel.send("blocked", blocked=blocked)

    # ------------------------------------------------------------ user code

    def _started(self, name: Optional[str] = None, importing: bool = False) -> None:
        self.spool.write(events.started(self._started_at, self._where, name, importing))

    def _must_import(self) -> bool:
        """Whether a module has yet to be imported that the job's limits do not count."""
        limits = self._header.get("timeout_s"), self._settings.get("silence_timeout_s")
        module = self._header["entry"].partition(":")[0]
        return limits != (None, None) and self._header["kind"] != IMPORT and module not in sys.modules

    def _result(self) -> Any:
        """The result's body and the digests of its value."""
        try:
            interrupter.open()
            try:
                self._run.check()
                value = self._execute()
            finally:
                interrupter.close_all()
            body, digests = without_secrets(
                self._run, *encoding.encode(value, self._header["blobs"], self.spool.synced, self._what)
            )
            return {"state": "completed", "at": time.time(), "value": body}, digests
        except BaseException as error:  # noqa: BLE001 - whatever ends user code is its result, never the engine's end
            return self._told_failure(error), []

    def _told_failure(self, error: BaseException) -> Result:
        try:
            return self._failure(error)
        except BaseException as odd:  # noqa: BLE001 - an exception's own code may end whoever tells of it
            return self._failure(odd)

    @property
    def _what(self) -> str:
        return "the result of " + self._header["entry"].rpartition(":")[2]

    def _execute(self) -> Any:
        self._fetch_kept()
        cwd = self._header.get("cwd")
        if cwd:
            os.chdir(cwd)
        if self._header["kind"] == IMPORT:
            return self._check_import()
        step = self._load_in_its_own_time() if self._imports else self._load()
        limits = Limits(
            self._frame,
            self._header.get("timeout_s"),
            self._settings.get("silence_timeout_s"),
            step.limit_words,
        )
        perform = _call_hook if self._header["kind"] == "hook" else _perform
        try:
            given = self._arguments(step)
            if isinstance(step, Flow) or self._header["args"].get("enc") != "json":
                self._look_for_paths(given)  # JSON holds none, but parameters of a flow may become some
            value = perform(step, self._header.get("key") or "", given, limits)
            self._run.wait_for_calls()
            self._look_for_paths(value)
        except Exception as error:
            broken = isinstance(error, StreamBroken)  # its flow begins it again
            self._retryable = not broken and step.options.retry_on.allows(error)
            raise
        return value

    def _look_for_paths(self, value: Any) -> None:
        if self._sharing is not None:
            self._sharing.look(value)

    def _check_import(self) -> None:
        """Import what a job would; an engine in which that failed is of no use to another."""
        manifest = self._header.get("manifest")
        known = read_manifest(Path(manifest).read_bytes()) if manifest else {}
        module = self._header["entry"].partition(":")[0]
        limits = Limits(self._frame, self._header.get("timeout_s"), None)
        checkout = self._header.get("checkout") or ""
        self._spoilt = True
        limits.run(lambda: check_import(module, self._root, known, checkout))
        self._spoilt = False

    def _load_in_its_own_time(self) -> Step[Any]:
        """Import first: what counts the time of the job elsewhere is told when that is over."""
        self._channel.send("importing", begins=True)
        step = self._load()
        self._channel.send("importing", begins=False)
        self._started()
        return step

    def _load(self) -> Step[Any]:
        try:
            step = loading.load(self._header["entry"], self._root)
        except (ImportError, SyntaxError) as error:
            self._spoilt = True
            raise _Unfit("code_missing") from error
        if not isinstance(step, Step):
            raise NotFound(f"{self._header['entry']} is no flow or task")
        return step

    def _args_path(self, digest: str) -> Path:
        """The file of the arguments, where the agent had it when it handed the job over, or will have it."""
        known = self._header.get("args_path")
        return Path(known) if known and os.path.exists(known) else self.spool.value_path(digest)

    def _arguments(self, step: Step[Any]) -> Any:
        try:
            given = encoding.decode(self._header["args"], self._args_path)
        except encoding.CannotDecode as error:
            raise _Unfit("arguments_do_not_load") from error
        if self._header["kind"] == "call" and isinstance(step, Flow):
            bound = step.parameters.bind(*given)
            return bound.args, bound.kwargs
        if self._header["kind"] != "run":
            return given
        if not isinstance(step, Flow):
            raise NotFound(f"{self._header['entry']} is no flow")
        bound = step.parameters.bind_params(given)
        name = step.name_of_run(bound.arguments)
        if name is not None:
            self._started(name)
        return bound.args, bound.kwargs

    def _fetch_kept(self) -> None:
        after: Any = 0
        more = bool(self._header.get("kept"))
        while more:
            page = self._channel.request("checkpoints", {"after": after})
            items: List[Dict[str, Any]] = page["items"]
            self._run.ledger.keep(
                [{**item["body"], "key": item["key"], "seeded": item.get("seeded", False)} for item in items]
            )
            more = bool(page.get("more")) and bool(items)
            after = items[-1]["number"] if items else after

    # ------------------------------------------------------------ its end

    def _failure(self, error: BaseException) -> Result:
        if isinstance(error, _Unfit):
            cause = error.__cause__ or error
            return {
                "state": "unfit",
                "at": time.time(),
                "reason": str(error),
                "message": encoding.summary_of(cause),
                "error": encoding.encode_error(cause),
            }
        cancelled = self._run.cancelled
        if cancelled is not None and is_interruption(error):
            return {"state": "cancelled", "at": time.time(), "reason": cancelled, "message": str(error)}
        return {
            "state": "failed",
            "at": time.time(),
            "reason": _reason(error),
            "message": encoding.summary_of(error),
            "error": encoding.encode_error(error),
            "retryable": None if self._retryable else False,
        }

    def _end_calls(self, failed: bool) -> None:
        """Nothing of the job runs on; a call that does not end costs the engine."""
        pool = self._run.pool
        if failed:
            pool.drop_waiting(Cancelled("the flow has ended"))
            self._run.interrupt_calls(Cancelled)
            self._run.abandoned |= not self._wait_for_running()
        pool.close()
        self.placer.close()

    def _wait_for_running(self) -> bool:
        deadline = time.monotonic() + self._run.grace_s
        while self._run.pool.running:
            if time.monotonic() > deadline:
                return False
            time.sleep(0.002)
        return True


def _perform(step: Step[Any], _key: str, given: Any, limits: Limits) -> Any:
    args, kwargs = given
    if not step.is_async:
        return limits.run(lambda: step.body(*args, **kwargs))
    from . import aio  # noqa: PLC0415 - asyncio is for those who use it

    # The loop keeps the time, unless it is blocked.
    return limits.run(lambda: aio.run_body(step, limits, *args, **kwargs), None, LOOP_S)


def _call_hook(step: Step[Any], key: str, summary: Any, limits: Limits) -> None:
    if not isinstance(step, Flow):
        raise NotFound("hooks are called for flows")
    hook = step.hooks.find(key)
    limits.run(lambda: hook(summary))


def _reason(error: BaseException) -> str:
    if isinstance(error, NotSerializable):
        return "not_serializable"
    if isinstance(error, ImportError):
        return "import"
    return telling.reason_of(error)
