"""Every command keeps to the same rules: what --json prints, and what each exit code means.

The tree of commands is walked; each one needs a call of it in `SAMPLES`, and a reason in `WITHOUT_JSON` when
it prints no JSON.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from farhand.cli.program import main
from farhand.model import Artifact, Flavor, Token, Variable
from tests.unit.web.fakes import ADMIN, T0, FakeServices, make_run
from tests.unit.web.served import Served, served

from .conftest import Call

WITHOUT_JSON = {
    "serve": "it goes on until it is stopped; --log-format json logs in JSON",
    "worker": "it goes on until it is stopped, and is a program of its own",
    "demo": "it is a show",
    "completion": "it prints a shell's program",
}


@dataclass(frozen=True)
class Sample:
    """A call that works. ``state`` is that of the run 0run1; JSON may come as an object a line."""

    words: str = ""
    state: str = "completed"
    typed: str = ""
    lines: bool = False
    exit_code: int = 0


SAMPLES = {
    "init": Sample("fresh"),
    "check": Sample("flows"),
    "stop": Sample(exit_code=3),  # of a home without a server; a real one is stopped in test_cli_serve
    "run": Sample("flows/one.py"),
    "signin": Sample(),
    "deploy": Sample("flows"),
    "flows list": Sample(),
    "flows show": Sample("train"),
    "flows put": Sample("document.json"),
    "flows versions": Sample("train"),
    "flows delete": Sample("train --yes"),
    "flavors set": Sample("small --cpus 2"),
    "flavors list": Sample(),
    "flavors delete": Sample("small"),
    "runs start": Sample("train -p lr=0.5"),
    "runs list": Sample(),
    "runs show": Sample("0run1"),
    "runs logs": Sample("0run1", lines=True),
    "runs cancel": Sample("0run1", state="running"),
    "runs retry": Sample("0run1", state="failed"),
    "runs why": Sample("0run1"),
    "runs compare": Sample("0run1 0run1"),
    "runs export": Sample("--jsonl", lines=True),
    "runs delete": Sample("0run1 --yes"),
    "sweep": Sample("train -p lr=0.1,0.2 --no-wait"),
    "artifacts list": Sample("0run1"),
    "artifacts get": Sample("0run1 fit.txt"),
    "schedules list": Sample(),
    "schedules pause": Sample("train.0a"),
    "schedules resume": Sample("train.0a"),
    "workers list": Sample(),
    "services list": Sample(),
    "services show": Sample("llm"),
    "services start": Sample("llm"),
    "services stop": Sample("llm"),
    "services logs": Sample("llm"),
    "provisioners list": Sample(),
    "provisioners test": Sample("hpc"),
    "workers show": Sample("gpu1"),
    "workers drain": Sample("gpu1"),
    "workers resume": Sample("gpu1"),
    "workers slots": Sample("gpu1 3"),
    "workers forget": Sample("gpu1"),
    "workers invite": Sample("gpu2"),
    "backup": Sample("store.tar --url URL"),
    "restore": Sample("broken.tar --home restored", exit_code=2),  # a good one: test_backup
    "tokens create": Sample("gpu2"),
    "tokens list": Sample(),
    "tokens revoke": Sample("jti0"),
    "tokens rotate-key": Sample("--yes"),
    "secrets set": Sample("db", typed="hunter2-hunter2"),
    "secrets list": Sample(),
    "secrets delete": Sample("old"),
    "variables set": Sample("rows 3"),
    "variables get": Sample("limit"),
    "variables list": Sample(),
    "variables delete": Sample("limit"),
    "audit list": Sample(),
    "events list": Sample(),
    "doctor": Sample(),
}
LEAVES = dict[str, click.Command]()
OFFLINE = {"init", "check", "stop", "run", "restore", "completion", "serve", "worker", "demo", "doctor"}
"""Commands that need no server."""


def leaves(group: click.Group, path: str = "") -> Iterator[tuple[str, click.Command]]:
    """Every command that does something, by the words that call it."""
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        if isinstance(command, click.Group):
            yield from leaves(command, f"{path}{name} ")
        else:
            yield path + name, command


assert isinstance(main, click.Group)
LEAVES = dict(leaves(main))
ONLINE = sorted(SAMPLES.keys() - OFFLINE)


@pytest.fixture(scope="module")
def serving(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """One server for all of them; what is behind it is made anew for each."""
    with served(FakeServices(tmp_path_factory.mktemp("services"))) as running:
        yield running


@pytest.fixture
def services(serving: Served, tmp_path: Path) -> FakeServices:
    """Something of everything."""
    services = serving.services
    FakeServices.__init__(services, tmp_path)
    services.runs.items["0run1"] = make_run()
    digest = services.blobs.put_bytes(b"a fit")
    services.runs.saved = [Artifact(1, "0run1", "fit.txt", digest, 5, "text/plain", T0)]
    services.tokens.items["jti0"] = Token("jti0", "gpu1", "worker", (), T0, T0)
    services.secrets.values["old"] = "hunter2-hunter2"
    services.variables.items["limit"] = Variable("limit", "3", T0, "admin")
    services.flavors.items["small"] = Flavor("small", 2, None, None, T0, "admin")
    return services


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the samples name."""
    (tmp_path / "flows").mkdir()
    (tmp_path / "flows" / "one.py").write_text("from farhand import flow\n@flow\ndef one(): return 1\n")
    (tmp_path / "document.json").write_text('{"nodes": []}')
    (tmp_path / "broken.tar").write_bytes(b"no tar")
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def filled(serving: Served, services: FakeServices, home: Path, directory: None) -> str:
    """The address of a server that runs on the home, and has something of everything."""
    (home / "server.json").write_text(json.dumps({"url": serving.url, "pid": 0}))
    (home / "admin-token").write_text(ADMIN)
    return serving.url


def invoke(path: str, *more: str, sample: Sample, url: str = "") -> tuple[int, str, str]:
    words = [url if word == "URL" else word for word in sample.words.split()]
    done = CliRunner().invoke(main, [*path.split(), *words, *more], input=sample.typed)
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done.exit_code, done.stdout, done.stderr


def test_every_command_has_its_sample() -> None:
    assert SAMPLES.keys() | WITHOUT_JSON.keys() == LEAVES.keys()
    assert not SAMPLES.keys() & WITHOUT_JSON.keys()


@pytest.mark.parametrize("path", SAMPLES)
def test_json_is_all_that_json_prints(path: str, filled: str, services: FakeServices) -> None:
    sample = SAMPLES[path]
    services.runs.items["0run1"] = make_run(state=sample.state)
    code, out, err = invoke(path, "--json", sample=sample, url=filled)
    assert code == sample.exit_code, err
    if code != 0:
        assert out == ""
        return
    for text in out.splitlines() if sample.lines else [out]:
        json.loads(text)


@pytest.mark.parametrize("path", sorted(LEAVES))
def test_an_option_that_does_not_exist_is_2(path: str, call: Call, home: Path) -> None:
    done = call(*path.split(), "--no-such-option")
    assert (done.exit_code, done.stdout) == (2, "")


@pytest.mark.parametrize("path", ONLINE)
def test_no_server_is_3_and_one_sentence(
    path: str, home: Path, directory: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FARHAND_TOKEN", ADMIN)
    code, out, err = invoke(path, sample=SAMPLES[path], url="http://127.0.0.1:1")
    assert (code, out, err.count("\n")) == (3, "", 1), err
    assert err.startswith("farhand: ")


@pytest.mark.parametrize("path", ONLINE)
def test_a_token_that_is_none_is_3_and_one_sentence(
    path: str, filled: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FARHAND_TOKEN", "nonsense")
    code, out, err = invoke(path, sample=SAMPLES[path], url=filled)
    assert (code, out, err.count("\n")) == (3, "", 1), err


ASKING = ["runs delete 0run1", "flows delete train", "tokens rotate-key"]


@pytest.mark.parametrize("words", ASKING)
@pytest.mark.parametrize(("typed", "code", "said"), [("n\n", 3, "nothing was done"), ("", 2, "--yes")])
def test_a_question_is_asked_on_stderr_and_no_is_3(
    words: str, typed: str, code: int, said: str, filled: str, services: FakeServices
) -> None:
    done = CliRunner().invoke(main, words.split(), input=typed)
    assert (done.exit_code, done.stdout) == (code, "")
    assert said in done.stderr
    assert "0run1" in services.runs.items
