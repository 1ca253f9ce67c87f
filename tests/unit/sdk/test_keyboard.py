"""Ctrl-C reaches a script in whatever moment it comes, and its run is recorded as cancelled."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import farhand
from farhand import flow, task

_OURS = (str(Path(farhand.__file__).parent / "sdk"), threading.__file__)
Place = tuple[str, int]


@task
def double(x: int) -> int:
    return 2 * x


@flow
def doubled() -> list[int]:
    return [*double.map([1, 2]).result(), double(3)]


class Striker:
    """Sends this process SIGINT when the main thread comes to a line for the first time."""

    def __init__(self, at: Place | None = None) -> None:
        self.at = at
        self.seen: dict[Place, None] = {}

    def __enter__(self) -> Striker:
        sys.settrace(self._trace)
        return self

    def __exit__(self, *_: object) -> None:
        sys.settrace(None)

    def _trace(self, frame: FrameType, event: str, _: Any) -> Any:
        if not frame.f_code.co_filename.startswith(_OURS):
            return None
        if event == "line":
            place = frame.f_code.co_filename, frame.f_lineno
            self.seen[place] = None
            if place == self.at:
                self.at = None
                sys.settrace(None)
                signal.raise_signal(signal.SIGINT)
        return self._trace


def lines_of(called: Callable[[], Any]) -> list[Place]:
    called()
    with Striker() as striker:
        called()
    return list(striker.seen)


def test_a_ctrl_c_at_any_line_ends_the_flow_and_leaves_a_whole_record(home: Path) -> None:
    places = lines_of(doubled)
    assert len(places) > 300
    wrong: dict[Place, Any] = {}
    for place in places:
        what = outcome(home, place)
        if what:
            wrong[place] = what
    assert wrong == {}
    assert doubled() == [2, 4, 6]


def outcome(home: Path, place: Place) -> str:
    """What is wrong after a Ctrl-C at this line."""
    inbox = home / "inbox"
    before = set(inbox.iterdir())
    try:
        with Striker(place) as striker:
            doubled()
    except KeyboardInterrupt:
        pass
    else:
        return "" if striker.at else "swallowed"  # a line that only some runs come to
    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        return "the handler has stayed"
    new = [path for path in inbox.iterdir() if path not in before and path.is_file()]
    ends = [json.loads(path.read_text().splitlines()[-1]) for path in new]
    for path in new:
        path.unlink()
    if len(ends) > 1 or any(end[0] != "result" for end in ends):
        return f"recorded as {ends}"
    return ""


def test_a_ctrl_c_that_breaks_off_no_wait_is_seen_all_the_same(home: Path) -> None:
    @task
    def sent() -> bool:
        """A signal to this thread leaves the main one in its wait, as one does that comes just before it."""
        waiting = threading.main_thread().ident
        assert waiting is not None
        while sys._current_frames()[waiting].f_code.co_name != "acquire":  # pyright: ignore[reportPrivateUsage]
            time.sleep(0.001)
        signal.pthread_kill(threading.get_ident(), signal.SIGINT)
        return ended.wait(60)

    ended = threading.Event()

    @flow
    def waits() -> None:
        try:
            sent.submit().result()
        except KeyboardInterrupt:
            ended.set()
            raise

    with pytest.raises(KeyboardInterrupt):
        waits()


def test_a_second_ctrl_c_does_not_wait_for_calls_that_cannot_hear_the_first() -> None:
    run, sleeping = script(_SLEEPS)
    sleeping.send_signal(signal.SIGINT)
    assert sleeping.stderr is not None
    said = sleeping.stderr.readline()
    sleeping.send_signal(signal.SIGINT)
    ended = sleeping.communicate(timeout=60)[1]
    assert said == (
        "farhand: interrupted; calls have up to 600 s to end; Ctrl-C again ends the script at once\n"
    )
    assert (sleeping.returncode, ended) == (
        130,
        f"farhand: interrupted; run {run} of main is recorded as cancelled\n",
    )


def test_a_handler_of_the_script_stays_the_one_that_is_called() -> None:
    called: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, _: called.append(number))
    try:
        flow(name="here")(lambda: signal.raise_signal(signal.SIGINT))()
        assert called == [signal.SIGINT]
    finally:
        signal.signal(signal.SIGINT, before)


def test_a_forked_child_has_a_ctrl_c_of_its_own() -> None:
    def body() -> int:
        child = os.fork()
        if child == 0:
            try:
                signal.raise_signal(signal.SIGINT)
            except KeyboardInterrupt:
                os._exit(7)
            os._exit(1)
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

    assert flow(name="here")(body)() == 7


def test_the_wakeup_of_a_loop_is_left_to_it() -> None:
    with open(os.devnull, "wb", buffering=0) as theirs:
        os.set_blocking(theirs.fileno(), False)
        before = signal.set_wakeup_fd(theirs.fileno())
        try:
            flow(name="here")(lambda: None)()
        finally:
            assert signal.set_wakeup_fd(before) == theirs.fileno()


_SLEEPS = """
import time
from farhand import flow, task
from farhand.sdk.context import current
@task
def waits():
    print(current().run.id, flush=True)
    time.sleep(600)
@flow
def main():
    current().run.grace_s = 600
    waits.submit().result()
main()
"""


def script(program: str) -> tuple[str, subprocess.Popen[str]]:
    """A program that runs, and the line that it said."""
    running = subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert running.stdout is not None
    return running.stdout.readline().strip(), running
