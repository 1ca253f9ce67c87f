from __future__ import annotations

import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from farhand.cli.stage import Program, Stage
from farhand.errors import FarhandError, Unreachable, Usage


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    with Stage(tmp_path, tmp_path) as stage:
        yield stage


def program(stage: Stage, code: str) -> Program:
    output = stage.directory / "program.log"
    with output.open("wb") as sink:
        process = subprocess.Popen([sys.executable, "-c", code], stdout=sink, stderr=sink)
    stage.programs.append(Program("program", process, output))
    return stage.programs[-1]


def test_a_stage_takes_a_free_port(stage: Stage) -> None:
    assert stage.port > 0
    assert stage.url == f"http://127.0.0.1:{stage.port}"


def test_closing_ends_every_process(stage: Stage) -> None:
    started = program(stage, "import signal; signal.pause()")
    stage.close()
    assert started.process.returncode is not None
    assert stage.programs == []


def test_a_process_that_ends_early_is_told_with_its_last_lines(stage: Stage) -> None:
    program(stage, "print('no such directory'); raise SystemExit(2)").process.wait()
    with pytest.raises(FarhandError, match=r"(?s)ended with 2 before it was ready.*no such directory"):
        stage.wait("it was ready", lambda: False)


def test_what_does_not_come_in_time_is_told(stage: Stage) -> None:
    with pytest.raises(FarhandError, match="not within 0 s: the sun rises"):
        stage.wait("the sun rises", lambda: False, timeout_s=0)


def test_stopping_a_process_twice_is_harmless(stage: Stage) -> None:
    started = program(stage, "import signal; signal.pause()")
    started.stop()
    started.stop()
    assert started.process.returncode is not None


def test_a_server_that_dies_while_it_is_asked_is_told_with_its_last_lines(stage: Stage) -> None:
    started = program(stage, "print('cannot import that'); raise SystemExit(1)")

    def asks() -> bool:
        started.process.wait()
        raise Unreachable("no answer")

    with pytest.raises(FarhandError, match=r"(?s)ended with 1.*cannot import that"):
        stage.wait("the flow is known", asks)


def test_an_interrupt_during_a_start_waits_until_the_process_is_known(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = subprocess.Popen

    def interrupted(*call: Any, **options: Any) -> subprocess.Popen[bytes]:
        process = start(*call, **options)
        signal.raise_signal(signal.SIGINT)
        return process

    monkeypatch.setattr(subprocess, "Popen", interrupted)
    with pytest.raises(KeyboardInterrupt):
        stage.start_worker("mill", "no token")
    assert [program.name for program in stage.programs] == ["mill"]


def test_a_port_that_is_taken_is_refused_before_a_server_is_started(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as holder:
        port = holder.getsockname()[1]
        with pytest.raises(Usage, match=f"port {port} cannot be used: .*--port"):
            Stage(tmp_path, tmp_path, port)
