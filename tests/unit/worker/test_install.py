"""The systemd unit of a worker, and the file of its token."""

from __future__ import annotations

import shutil
import stat
import sys
from pathlib import Path

import pytest

from farhand_worker.__main__ import main
from farhand_worker.install import quoted
from tests.harness.units import read_unit, started, verified

NAME = "mill"


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("FARHAND_WORKER_TOKEN", "the.token")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["farhand-worker"])
    return tmp_path


def installed(home: Path, *arguments: str) -> tuple[Path, Path]:
    assert main(["install", "--user", "--url", "https://f.example", "--name", NAME, *arguments]) == 0
    return (
        home / "config/systemd/user/farhand-worker-mill.service",
        home / "config/farhand/mill.token",
    )


def test_it_writes_a_unit_and_a_token_that_only_its_owner_reads(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (home / "farhand.toml").write_text("[worker]\nparallel = 3\nshared_paths = ['/srv/100%']\n")
    unit, token = installed(home, "--labels", "gpu,zone=eu", "--max-idle", "1h")
    assert token.read_text() == "the.token\n"
    assert stat.S_IMODE(token.stat().st_mode) == 0o600
    text = unit.read_text()
    assert "the.token" not in text
    start = next(line for line in text.splitlines() if line.startswith("ExecStart="))
    assert start == (
        f"ExecStart={sys.executable} -m farhand_worker --url https://f.example --labels gpu,zone=eu "
        f"--parallel 3 --shared-path /srv/100%% --max-idle 3600 --name mill --python {sys.executable} "
        f"--state-dir {home}/state/farhand-worker/mill --token-file {token}"
    )
    assert "Restart=on-failure" in text  # after --max-idle it stays away
    told = capsys.readouterr().out
    assert "systemctl --user enable --now farhand-worker-mill.service" in told
    assert "the.token" not in told


def test_a_second_installation_takes_the_place_of_the_first(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed(home)
    monkeypatch.setenv("FARHAND_WORKER_TOKEN", "another.token")
    unit, token = installed(home, "--parallel", "2")
    assert token.read_text() == "another.token\n"
    assert stat.S_IMODE(token.stat().st_mode) == 0o600
    assert "--parallel 2" in unit.read_text()
    assert "Restart=always" in unit.read_text()


def test_the_way_to_the_server_and_the_gpus_that_are_lent_go_into_the_unit(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A service has none of the shell's variables: it would dial in vain, or lend what was held back."""
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy.lan:3128")
    monkeypatch.setenv("no_proxy", "10.0.0.0/8, .lan")
    monkeypatch.setenv("SSL_CERT_FILE", "/etc/our ca.pem")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1,3")
    unit, _ = installed(home)
    lines = unit.read_text().splitlines()
    assert "Environment=HTTPS_PROXY=http://proxy.lan:3128" in lines
    assert 'Environment="no_proxy=10.0.0.0/8, .lan"' in lines
    assert 'Environment="SSL_CERT_FILE=/etc/our ca.pem"' in lines
    assert "Environment=CUDA_VISIBLE_DEVICES=1,3" in lines
    assert stat.S_IMODE(unit.stat().st_mode) == 0o644
    monkeypatch.setenv("FARHAND_WORKER_TOKEN", "the.token")
    monkeypatch.setenv("HTTPS_PROXY", "http://me:secret@proxy.lan:3128")
    unit, _ = installed(home)
    assert stat.S_IMODE(unit.stat().st_mode) == 0o600, "as the token's file"


def test_an_archive_is_started_as_one(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["farhand-worker.pyz"])
    unit, _ = installed(home)
    assert f"ExecStart={sys.executable} {home / 'farhand-worker.pyz'} --url" in unit.read_text()


def test_a_worker_of_a_checkout_is_started_in_it_again(home: Path) -> None:
    (home / "pipelines").mkdir()
    (home / "pipelines" / "farhand.toml").write_text("[worker]\nparallel = 7\n")
    unit, token = installed(home, "pipelines")
    start = next(line for line in unit.read_text().splitlines() if line.startswith("ExecStart="))
    assert start.endswith(f"--token-file {token} {home / 'pipelines'}")
    assert " --parallel 7 " in start  # the file of settings is that of the checkout


ODD = "a b 50% $HOME"
"""A directory's name with all that a unit gives a meaning of its own, and that systemd still starts from."""


def installed_oddly(home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A unit of a user whose home, program and data all lie below directories of such a name."""
    odd = home / ODD
    odd.mkdir()
    program = odd / "python"
    program.symlink_to(sys.executable)
    monkeypatch.setattr(sys, "executable", str(program))
    monkeypatch.setenv("XDG_STATE_HOME", str(odd / "state"))
    return installed(home, "--shared-path", '/srv/a "b" \\ $c %d')[0]


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")
def test_systemd_finds_no_fault_with_the_unit(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    unit = installed_oddly(home, monkeypatch)
    done = verified(unit, home)
    assert (done.returncode, done.stderr) == (0, "")


def test_the_unit_says_to_systemd_what_was_said(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    unit = read_unit(installed_oddly(home, monkeypatch).read_text())
    assert {name: sorted(keys) for name, keys in unit.items()} == {
        "Unit": ["Description"],
        "Service": [
            "Environment",
            "ExecStart",
            "ExecStop",
            "KillMode",
            "Restart",
            "RestartPreventExitStatus",
            "RestartSec",
            "TimeoutStopSec",
        ],
        "Install": ["WantedBy"],
    }
    words = started(unit["Service"]["ExecStart"])
    assert words[:3] == [f"{home / ODD / 'python'}", "-m", "farhand_worker"]
    assert words[words.index("--shared-path") + 1] == '/srv/a "b" \\ $c %d'
    assert words[words.index("--state-dir") + 1] == f"{home / ODD}/state/farhand-worker/mill"


@pytest.mark.parametrize("sign", ['"', "'", "\\"])
def test_a_program_that_systemd_would_not_start_is_2(
    home: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, sign: str
) -> None:
    odd = home / f"a{sign}b"
    odd.mkdir()
    (odd / "python").symlink_to(sys.executable)
    monkeypatch.setattr(sys, "executable", str(odd / "python"))
    assert main(["install", "--user", "--url", "https://f.example", "--name", NAME]) == 2
    assert "has a quote or a backslash in its path, so systemd would not start it" in caplog.messages[-1]
    assert not (home / "config/systemd").exists()


def test_without_user_it_says_what_to_give(home: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert main(["install", "--url", "https://f.example"]) == 2
    assert "give --user" in caplog.messages[-1]
    assert not (home / "config").exists()


def test_a_directory_that_cannot_be_written_is_2(home: Path, caplog: pytest.LogCaptureFixture) -> None:
    (home / "config").write_text("")
    assert main(["install", "--user", "--url", "https://f.example"]) == 2
    assert "cannot be written" in caplog.messages[-1]


@pytest.mark.parametrize(
    ("word", "unit"),
    [
        ("plain/1", "plain/1"),
        ("a b", '"a b"'),
        ('"', '"\\""'),
        ("5%", "5%%"),
        ("$X", '"$$X"'),
        ("a\\b", '"a\\\\b"'),
    ],
)
def test_a_word_is_quoted_as_systemd_reads_it(word: str, unit: str) -> None:
    assert quoted(word) == unit
