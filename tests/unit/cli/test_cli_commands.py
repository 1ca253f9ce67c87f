"""What the commands print for people and for programs, against a real HTTP server."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from farhand.cli import output
from farhand.engine.fitness import FlowCode
from farhand.model import LogLine
from tests.unit.web.fakes import T0, FakeServices, make_run

from .conftest import Call

pytestmark = pytest.mark.usefixtures("server")


def test_starting_a_run_prints_its_id(call: Call) -> None:
    done = call("runs", "start", "train", "-p", "lr=0.5")
    assert (done.exit_code, done.stdout) == (0, "0new1\n")


def test_starting_with_a_wrong_parameter_is_2(call: Call) -> None:
    done = call("runs", "start", "train", "-p", "depth=1")
    assert done.exit_code == 2
    assert "depth" in done.stderr
    assert call("runs", "start", "none").exit_code == 2


@pytest.mark.parametrize(
    ("state", "code"), [("completed", 0), ("failed", 1), ("cancelled", 1), ("crashed", 1)]
)
def test_waiting_ends_with_the_runs_outcome(
    call: Call, services: FakeServices, monkeypatch: pytest.MonkeyPatch, state: str, code: int
) -> None:
    async def start(*_: object, **__: object) -> object:
        return services.runs.items["0run1"]

    services.runs.items["0run1"] = make_run(state=state, message="why")
    services.runs.lines = [LogLine(1, T0, "hello", "stdout", "info", None, 1)]
    monkeypatch.setattr(services.runs, "start", start)
    done = call("runs", "start", "train", "--follow")
    assert done.exit_code == code
    assert done.stdout == "hello\n" + '{"a": 1}\n' * (state == "completed")
    assert state in done.stderr
    done = call("runs", "start", "train", "--wait", "--json")
    assert (done.exit_code, json.loads(done.stdout)["state"]) == (code, state)


@pytest.mark.parametrize(
    "words",
    [
        ("runs", "list"),
        ("runs", "show", "0run1"),
        ("runs", "start", "train"),
        ("flows", "list"),
        ("flows", "show", "train"),
        ("workers", "list"),
        ("workers", "show", "gpu1"),
        ("tokens", "list"),
        ("tokens", "create", "gpu1"),
        ("signin",),
    ],
)
def test_json_is_all_that_json_prints(call: Call, words: tuple[str, ...]) -> None:
    done = call(*words, "--json")
    assert done.exit_code == 0
    json.loads(done.stdout)
    assert done.stderr == ""
    assert call(*words).exit_code == 0


def test_a_list_is_plain_columns_where_nobody_looks_on(call: Call) -> None:
    head, row = call("runs", "list").stdout.splitlines()
    assert head.split()[:3] == ["run", "flow", "state"]
    assert row.split()[:4] == ["0run1", "train", "completed", "server"]
    assert "\x1b" not in head + row


def test_a_run_is_shown_with_its_attempts(call: Call) -> None:
    shown = call("runs", "show", "0run1").stdout
    for part in ("train", "completed", '{"a": 1}', "box", "2.00 s", " ago)"):
        assert part in shown


def test_a_list_of_flows_names_the_files_that_are_not_offered(call: Call, services: FakeServices) -> None:
    done = call("flows", "list")
    assert "train" in done.stdout
    assert done.stderr == "broken.py is not offered: SyntaxError: no\n"
    services.flows.items.clear()
    assert call("flows", "list").stderr.splitlines()[1:] == ["broken.py is not offered: SyntaxError: no"]


def test_a_worker_is_shown_with_the_flows_it_is_not_given(
    call: Call, services: FakeServices, monkeypatch: pytest.MonkeyPatch
) -> None:
    against = FlowCode("train", "sha256:f", "checkout_differs", "its checkout differs in train.py")
    monkeypatch.setattr(services.fitness, "code_of", lambda *_: [against])
    shown = call("workers", "show", "gpu1").stdout.splitlines()
    assert shown[-1].split() == ["train", *against.message.split()]
    monkeypatch.setattr(services.fitness, "code_of", lambda *_: [replace(against, state="unchecked")])
    assert "it is not given" not in call("workers", "show", "gpu1").stdout


def test_moments_are_short_where_the_terminal_is_narrow(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [("0run1", "2026-11-30 12:57:00 (3 min ago)", "on 2026-11-30 12:57:00 (3 min ago) it was")]
    for columns, short in (("100", True), ("200", False)):
        monkeypatch.setenv("COLUMNS", columns)
        output._print_rich(("run", "created", "message"), rows)
        first = " ".join(capsys.readouterr().out.split())
        assert ("0run1 3 min ago on 2026-11-30" in first) is short


def test_whoever_sets_more_slots_than_cores_is_told(call: Call, services: FakeServices) -> None:
    done = call("workers", "slots", "gpu1", "400")
    assert (done.stdout, done.stderr) == ("gpu1 has 2 slots\n", "")
    services.workers.items[0] = replace(
        services.workers.items[0], parallel=400, reported={"inventory": {"cpus": 8}}
    )
    done = call("workers", "slots", "gpu1", "400")
    words = "400 slots are above the 8 cores of that machine; the jobs will share them"
    assert (done.stdout, done.stderr) == ("gpu1 has 400 slots\n", f"warning: {words}\n")
    assert json.loads(call("workers", "show", "gpu1", "--json").stdout)["warning"] == words
    assert words in call("workers", "show", "gpu1").stdout


def test_a_worker_that_drained_is_shown_as_that(call: Call, services: FakeServices) -> None:
    services.workers.items[0] = replace(services.workers.items[0], drained_by="anna")
    assert call("workers", "list").stdout.splitlines()[1].split()[:2] == ["gpu1", "draining"]
    services.workers.holds = ()
    assert call("workers", "list").stdout.splitlines()[1].split()[:2] == ["gpu1", "drained"]


def test_a_worker_that_needs_a_new_token_is_listed_as_that(call: Call, services: FakeServices) -> None:
    services.workers.items[0] = replace(services.workers.items[0], state="offline")
    assert "offline, needs a new token" in call("workers", "list").stdout
    assert json.loads(call("workers", "list", "--json").stdout)[0]["needs_token"]


def test_a_log_is_printed_as_it_was_written(call: Call, services: FakeServices) -> None:
    services.runs.lines = [LogLine(n, T0, f"line {n}", "stdout", "info", None, 1) for n in (1, 2)]
    assert call("runs", "logs", "0run1").stdout == "line 1\nline 2\n"
    assert call("runs", "logs", "0run1", "--follow").stdout == "line 1\nline 2\n"
    dated = call("runs", "logs", "0run1", "--times").stdout.splitlines()
    assert [line[24:] for line in dated] == ["info    line 1", "info    line 2"]
    numbers = [
        json.loads(line)["number"] for line in call("runs", "logs", "0run1", "--json").stdout.splitlines()
    ]
    assert numbers == [1, 2]


def test_cancelling_says_the_state_and_a_finished_run_is_3(call: Call, services: FakeServices) -> None:
    assert call("runs", "cancel", "0run1").exit_code == 3
    services.runs.items["0run1"] = make_run(state="running")
    assert call("runs", "cancel", "0run1").stdout == "0run1 is cancelling\n"


def test_a_token_goes_to_stdout_alone(call: Call, services: FakeServices) -> None:
    done = call("tokens", "create", "gpu1", "--labels", "gpu, zone=eu", "--expires", "2h")
    assert done.stdout == "text-of-jti0\n"
    token = services.tokens.items["jti0"]
    assert token.labels == ("gpu", "zone=eu")
    assert token.expires_at == T0 + 7200
    assert "jti0" in call("tokens", "list").stdout
    assert call("tokens", "revoke", "jti0").stdout == "jti0 is revoked\n"
    assert call("tokens", "revoke", "jti0").stdout == "jti0 was revoked before\n"
    assert call("tokens", "revoke", "none").exit_code == 2
    assert call("tokens", "create", "gpu1", "--expires", "soon").exit_code == 2
    assert call("tokens", "create", "gpu1", "--expires", "0").stderr.startswith("farhand: --expires: '0' ")


def test_a_sign_in_link_opens_the_console(call: Call, server: str) -> None:
    import httpx2

    link = call("signin").stdout.strip()
    assert link.startswith(f"{server}/signin?code=")
    assert httpx2.get(link, verify=False).status_code == 303


def test_moments_are_local_and_relative(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(output.time, "time", lambda: T0)
    assert output.moment(None) == "-"
    assert output.moment(T0 - 90).endswith("(90 s ago)")
    assert output.moment(T0 - 7200).endswith("(2 h ago)")
    assert output.moment(T0 + 30 * 86400).endswith("(in 30 d)")
    assert output.took(T0 - 5, None) == "5.00 s"
    assert output.took(None, None) == "-"


def test_the_workers_options_are_passed_on(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    import farhand_worker.__main__ as program

    got: list[list[str]] = []
    monkeypatch.setattr(program, "main", lambda arguments: got.append(arguments) or 3)
    done = call("worker", "--url", "http://x", "--parallel", "2", "--help")
    assert (done.exit_code, got) == (3, [["--url", "http://x", "--parallel", "2", "--help"]])


def test_an_empty_list_says_so_and_prints_nothing(call: Call, server: str, services: FakeServices) -> None:
    assert (call("runs", "list", "--flow", "none").stdout, call("runs", "list", "--flow", "none").stderr) == (
        "",
        "No run is like that.\n",
    )
    services.runs.items.clear()
    assert call("runs", "list").stderr == "There are no runs yet.\n"
    assert "tokens create" in call("tokens", "list").stderr


def test_a_run_that_completed_needs_no_reason(call: Call, server: str, services: FakeServices) -> None:
    services.runs.items["0done"] = make_run(id="0done", state="completed", reason="completed", message="")
    assert "why" not in call("runs", "show", "0done").stdout


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["Bad Name"], "'Bad Name' cannot be the name of a token"),
        (["gpu1", "--labels", "a b"], "'a b' has a space in it"),
        (["gpu1", "--role", "root"], "'root' is not one of 'admin'"),
    ],
)
def test_a_token_that_cannot_be_minted_is_refused_in_words(
    call: Call, arguments: list[str], words: str
) -> None:
    done = call("tokens", "create", *arguments)
    assert (done.exit_code, done.stdout) == (2, "")
    assert words in done.stderr


def test_the_doctor_ends_with_1_when_something_is_wrong(call: Call, services: FakeServices) -> None:
    from farhand.engine.doctor import ERROR, WARNING, Finding

    done = call("doctor")
    assert (done.exit_code, done.stdout.splitlines()[-1]) == (0, "Nothing is wrong.")
    services.doctor.findings.append(Finding(WARNING, "disk", "it is low"))
    assert call("doctor").exit_code == 0
    services.doctor.findings.append(Finding(ERROR, "store", "it is broken"))
    done = call("doctor")
    assert done.exit_code == 1
    assert "error: store: it is broken" in done.stdout
    assert json.loads(call("doctor", "--json").stdout)["findings"][1]["about"] == "store"


def test_the_doctor_looks_at_the_machine_where_no_server_runs(call: Call, home: Path) -> None:
    (home / "server.json").unlink()
    (home / "admin-token").chmod(0o600)
    done = call("doctor")
    assert done.exit_code == 0
    assert "warning: server: no server runs on" in done.stdout
    (home / "admin-token").chmod(0o644)
    assert call("doctor").exit_code == 1


def test_a_secret_comes_from_standard_input_and_is_never_shown(call: Call, services: FakeServices) -> None:
    from click.testing import CliRunner

    from farhand.cli.program import main

    done = CliRunner().invoke(main, ["secrets", "set", "db"], input="hunter2-hunter2\n")
    assert (done.exit_code, done.stdout) == (0, "db is set\n")
    assert services.secrets.values == {"db": "hunter2-hunter2"}
    for words in (("secrets", "list"), ("secrets", "list", "--json"), ("audit", "list")):
        shown = call(*words)
        assert shown.exit_code == 0
        assert "db" in shown.stdout
        assert "hunter2" not in shown.output
    assert call("secrets", "delete", "db").stdout == "db is deleted\n"
    assert call("secrets", "delete", "db").exit_code == 2
    assert call("secrets", "set", "db", "hunter2").exit_code == 2


def test_a_variable_is_json_where_it_can_be(call: Call) -> None:
    for text, shown in (("3", "3"), ('{"a": [1]}', '{"a": [1]}'), ("some text", "some text"), ("NaN", "NaN")):
        assert call("variables", "set", "limit", text).exit_code == 0
        assert call("variables", "get", "limit").stdout == f"{shown}\n"
    assert "limit" in call("variables", "list").stdout
    assert call("variables", "delete", "limit").stdout == "limit is deleted\n"
    assert call("variables", "get", "limit").exit_code == 2


def test_flavors_are_set_listed_and_deleted(call: Call) -> None:
    words = ("flavors", "set", "gpu-small", "--cpus", "8", "--gpus", "1", "--ram", "64G")
    assert call(*words).stdout == "gpu-small is set\n"
    assert call(*words).stdout == "gpu-small is changed\n"
    assert "64G" in call("flavors", "list").stdout
    assert call("flavors", "delete", "gpu-small").stdout == "gpu-small is deleted\n"
    assert call("flavors", "delete", "gpu-small").exit_code == 2


def test_the_signing_key_is_changed_only_after_a_question(call: Call, services: FakeServices) -> None:
    assert call("tokens", "rotate-key").exit_code == 2
    assert services.tokens.generation == "first"
    assert call("tokens", "rotate-key", "--yes").exit_code == 0
    assert services.tokens.generation == "firstx"


@pytest.mark.parametrize(
    ("state", "message", "told"),
    [
        (
            "running",
            "running on box; fit waits for label gpu",
            "0run1 is running on box; fit waits for label gpu",
        ),
        ("queued", "waits for label gpu", "0run1 is queued: waits for label gpu"),
        ("completed", "", "0run1 is completed"),
    ],
)
def test_why_says_the_state_once(
    state: str, message: str, told: str, call: Call, services: FakeServices
) -> None:
    services.runs.items["0run1"] = make_run(state=state, message=message)
    assert call("runs", "why", "0run1").stdout.splitlines()[0] == told
