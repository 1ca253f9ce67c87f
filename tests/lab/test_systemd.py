"""A worker as a service of its user's systemd: the page's own lines, against a real one."""

from __future__ import annotations

import re
import shlex
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.docs.pages import page
from tests.harness.deployment import Deployment, deployed
from tests.harness.processes import alive
from tests.harness.waiting import eventually
from tests.lab.systemd import UserSystemd, user_systemd

UNIT = "farhand-worker-mill.service"


@pytest.fixture(scope="module")
def systemd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[UserSystemd]:
    with user_systemd(tmp_path_factory.mktemp("home")) as manager:
        yield manager


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    with deployed(tmp_path_factory.mktemp("server"), parallel=0) as deployment:
        yield deployment


@pytest.fixture
def mill(server: Deployment, systemd: UserSystemd) -> Iterator[str]:
    """The worker ``mill``, installed and started by what the page says; the id of its token."""
    made = server.post("/workers/tokens", {"name": "mill", "labels": [], "expires_s": 3600})
    token = systemd.home / "mill.token"
    token.write_text(made["token"])
    token.chmod(0o600)
    words = [sys.executable, "-m", "farhand_worker", "install", "--user", "--url", server.url]
    words += ["--name", "mill", "--token-file", str(token), "--parallel", "2"]
    systemd.do(shlex.join(words))
    lines = re.findall(r"^ {4}(systemctl --user [^#\n]+)", page("howto-systemd.md"), re.MULTILINE)
    assert [line.split()[2] for line in lines] == ["daemon-reload", "enable"]
    for line in lines:
        systemd.do(line)
    server.wait_for_worker("mill", "online")
    yield made["jti"]
    systemd.do(f"systemctl --user disable --now {UNIT}")
    eventually(lambda: not systemd.pids(), what="nothing of it is left")
    server.post("/workers/mill/forget", {"settle": True})


def test_a_worker_that_is_killed_in_mid_run_comes_back_by_itself_and_ends_the_run(
    server: Deployment, systemd: UserSystemd, mill: str, tmp_path: Path
) -> None:
    witness, gate = tmp_path / "witness", tmp_path / "gate"
    run = server.start_run("waiting_there", path=str(witness), gate=str(gate))
    server.wait_for_run(run, "running")
    before = systemd.shown(UNIT, "MainPID")
    systemd.do(f"kill -KILL {before}")
    eventually(lambda: server.run(run)["attempt"] == 2, 30, "it is taken up again")
    gate.touch()
    assert server.wait_for_run(run)["state"] == "completed"
    assert systemd.shown(UNIT, "MainPID") != before
    assert systemd.shown(UNIT, "NRestarts") == "1"


def test_a_restart_and_a_stop_end_the_worker_with_grace_and_leave_no_process(
    server: Deployment, systemd: UserSystemd, mill: str, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    run = server.start_run("waiting_there", path=str(tmp_path / "witness"), gate=str(gate))
    server.wait_for_run(run, "running")
    systemd.do(f"systemctl --user restart {UNIT}")
    eventually(lambda: server.run(run)["attempt"] == 2, 30, "it is taken up again")
    first = server.run(run)["attempts"][0]
    assert (first["outcome"], first["reason"]) == ("stopped", "stopped")
    gate.touch()
    assert server.wait_for_run(run)["state"] == "completed"
    pids = systemd.pids()
    assert pids
    systemd.do(f"systemctl --user stop {UNIT}")
    server.wait_for_worker("mill", "offline")
    assert systemd.shown(UNIT, "ActiveState") == "inactive"
    eventually(lambda: not any(alive(pid) for pid in pids), what="all its processes have ended")


def test_a_worker_whose_token_was_revoked_stays_down(
    server: Deployment, systemd: UserSystemd, mill: str
) -> None:
    server.post(f"/workers/tokens/{mill}/revoke")
    eventually(lambda: systemd.shown(UNIT, "ActiveState") == "failed", what="it has ended")
    assert (systemd.shown(UNIT, "ExecMainStatus"), systemd.shown(UNIT, "NRestarts")) == ("3", "0")
    assert "revoked" in systemd.text()


def test_variables_that_the_page_has_one_put_into_the_unit_are_there_and_the_token_is_not(
    server: Deployment, systemd: UserSystemd, mill: str
) -> None:
    """The drop-in of the page, as ``systemctl --user edit`` writes it."""
    found = re.search(r"^ {4}\[Service\]\n(?: {4}\S.*\n)+", page("howto-systemd.md"), re.MULTILINE)
    assert found is not None
    drop_in = textwrap.dedent(found.group())
    place = systemd.home / ".config" / "systemd" / "user" / f"{UNIT}.d"
    place.mkdir()
    (place / "override.conf").write_text(drop_in)
    (systemd.home / ".config" / "farhand" / "mill.env").write_text("MILL_GRAIN=rye\n")
    systemd.do("systemctl --user daemon-reload")
    systemd.do(f"systemctl --user restart {UNIT}")
    server.wait_for_worker("mill", "online")
    seen = [psutil.Process(pid).environ() for pid in systemd.pids()]
    assert all(variables["MILL_GRAIN"] == "rye" for variables in seen)
    token = (systemd.home / "mill.token").read_text()
    assert token not in str(seen)
