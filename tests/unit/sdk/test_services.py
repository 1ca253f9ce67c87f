"""`Service` and `service_url`: what is taken, what is refused in one sentence, and what a script is told."""

from __future__ import annotations

from typing import Any

import pytest

from farhand import ArtifactRef, Service, flow, service_url
from farhand.errors import NotFound, ServiceUnavailable, Usage
from farhand.sdk import services
from farhand.sdk.context import Recorder, Run

COMMAND = ["serve", "--port", "{port}"]
ODD = "\"'\n$(id) " + "x" * 300
WEIGHTS = "sha256:" + "a" * 64


def test_a_service_says_what_a_server_has_to_know() -> None:
    llm = Service(
        "llm", ["serve", "{port}", "{weights}"], port=8000, device="gpu", gpus=1, ram="8G",
        weights=ArtifactRef("w", WEIGHTS, 1), secrets=["hf-token"], stop_timeout="10s", env={"A": ODD},
    )  # fmt: skip
    told = llm.described()
    assert told["spec"]["weights"] == WEIGHTS
    assert told["spec"]["stop_s"] == 10.0
    assert told["spec"]["env"] == {"A": ODD}
    assert told["ask"]["labels"] == ["gpu"]
    assert (told["ask"]["gpus"], told["ask"]["ram_mb"]) == (1, 8192)
    assert told["secrets"] == ["hf-token"]


def test_a_flow_names_the_services_that_it_needs() -> None:
    llm = Service("llm", COMMAND)

    @flow(services=llm)
    def one() -> None: ...

    assert one.services == [llm]
    with pytest.raises(Usage, match=r"Service\(…\)"):
        flow(services=["llm"])(lambda: None)  # type: ignore[list-item]


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"name": "No Such"}, "name of a service"),
        ({"name": 'a"b'}, "name of a service"),
        ({"name": "x" * 300}, "name of a service"),
        ({"command": "serve {port}"}, "list of words"),
        ({"command": []}, "list of words"),
        ({"command": ["serve", 8000]}, "list of words"),
        ({"command": ["serve", "\0"]}, "NUL"),
        ({"command": ["serve"]}, "needs a port"),
        ({"port": 0}, "whole number from 1"),
        ({"port": 70000}, "whole number from 1"),
        ({"port": True}, "whole number from 1"),
        ({"health": "health"}, "path such as"),
        ({"health": "/a b"}, "path such as"),
        ({"health": "/a\r\nX: y"}, "path such as"),
        ({"env": {"A-B": "c"}}, "names no variable"),
        ({"env": {"FARHAND_X": "c"}}, "farhand's own"),
        ({"env": {"A": 1}}, "must have text"),
        ({"env": {"HF_TOKEN": "c"}, "secrets": ["hf-token"]}, "holds a secret too"),
        ({"weights": "weights.bin"}, "digest"),
        ({"command": ["serve", "{port}", "{weights}"]}, "names {weights}"),
        ({"stop_timeout": 0}, "more than nothing"),
        ({"start_timeout": "3d"}, "at most 86400"),
        ({"gpus": -1}, "whole number"),
    ],
)
def test_what_cannot_be_run_is_refused_where_it_is_written(given: dict[str, Any], words: str) -> None:
    with pytest.raises(Usage, match=words):
        Service(**{"name": "llm", "command": COMMAND, **given})


def test_a_script_is_told_where_a_service_is_by_its_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(NotFound, match="FARHAND_SERVICE_MY_LLM"):
        service_url("my-llm")
    monkeypatch.setenv("FARHAND_SERVICE_MY_LLM", "http://localhost:1")
    assert service_url("my-llm") == "http://localhost:1"


class Server:
    """Answers questions for a service with what it was given, the last again and again."""

    def __init__(self, *answers: str) -> None:
        self.answers = list(answers)
        self.asked: list[dict[str, Any]] = []

    def __call__(self, kind: str, args: dict[str, Any]) -> dict[str, Any]:
        assert kind == "service"
        self.asked.append(args)
        state = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        url = "http://gpu:8000" if state == "healthy" else ""
        return {"state": state, "reason": "", "message": "so it is", "url": url}


def asking(server: Server) -> Run:
    return Run("r", "train", Recorder(), ask=server)


def test_a_task_waits_until_it_is_healthy() -> None:
    server = Server("degraded", "degraded", "healthy")
    assert services._wait(asking(server), "llm", None) == "http://gpu:8000"
    assert [args["name"] for args in server.asked] == ["llm"] * 3


@pytest.mark.parametrize("state", ["down", "stopped"])
def test_a_task_does_not_wait_for_what_nobody_starts(state: str) -> None:
    with pytest.raises(ServiceUnavailable, match=f"is {state}: so it is"):
        services._wait(asking(Server("degraded", state)), "llm", 60.0)


def test_a_task_waits_no_longer_than_it_says() -> None:
    server = Server("degraded")
    with pytest.raises(ServiceUnavailable, match="degraded after 0 s"):
        services._wait(asking(server), "llm", 0.0)
    assert server.asked == [{"name": "llm", "wait_s": 0.0}]
