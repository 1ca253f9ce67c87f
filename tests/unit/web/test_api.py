"""The routes: what they answer, and what an error looks like."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from starlette.testclient import TestClient

from farhand.errors import FarhandError, StoreFailed
from farhand.model import Artifact, LogLine, TaskRun

from .fakes import ADMIN, T0, WORKER, FakeServices, caller, digest_of, make_run, problem_of


def test_starting_a_run_answers_202_with_the_run(client: TestClient) -> None:
    answer = client.post("/api/v1/flows/train/runs", json={"params": {"lr": 0.2}, "idempotency_key": "k"})
    assert answer.status_code == 202
    assert answer.json()["state"] == "queued"
    assert answer.headers["location"].endswith(f"/runs/{answer.json()['id']}")


def test_a_run_can_be_started_without_a_body(client: TestClient) -> None:
    assert client.post("/api/v1/flows/train/runs").status_code == 202


def test_a_parameter_that_does_not_fit_is_named(client: TestClient) -> None:
    answer = client.post("/api/v1/flows/train/runs", json={"params": {"depth": 1}})
    assert problem_of(answer) == (422, "invalid_parameters")
    assert answer.json()["detail"].startswith("depth")
    assert [error["field"] for error in answer.json()["errors"]] == ["depth"]


@pytest.mark.parametrize(
    ("body", "field"),
    [({"params": [1]}, "params"), ({"idempotency_key": {"secret": "hunter2"}}, "idempotency_key")],
)
def test_a_body_that_does_not_fit_is_named_and_not_echoed(client: TestClient, body: Any, field: str) -> None:
    answer = client.post("/api/v1/flows/train/runs", json=body)
    assert problem_of(answer) == (422, "invalid_request")
    assert answer.json()["errors"][0]["field"] == field
    assert "hunter2" not in answer.text


def test_a_body_that_is_no_json_is_refused(client: TestClient) -> None:
    headers = {"Content-Type": "application/json"}
    answer = client.post("/api/v1/flows/train/runs", content=b"{", headers=headers)
    assert problem_of(answer) == (422, "invalid_request")


@pytest.mark.parametrize(
    "path", ["/api/v1/runs/0zz", "/api/v1/flows/none", "/api/v1/workers/none", "/api/none"]
)
def test_what_is_not_there_is_404(client: TestClient, path: str) -> None:
    assert problem_of(client.get(f"/api/v1/{path}")) == (404, "not_found")


def test_a_method_that_a_path_lacks_is_405(client: TestClient) -> None:
    assert problem_of(client.put("/api/v1/runs")) == (405, "method_not_allowed")


def test_a_run_shows_its_parameters_and_result_as_json(client: TestClient) -> None:
    run = client.get("/api/v1/runs/0run1").json()
    assert run["params"] == {"lr": 0.1}
    assert (run["result"], run["result_form"]) == ({"a": 1}, "json")
    assert run["attempts"][0]["host"] == "box"


def test_result_text_is_passed_on_as_it_is(client: TestClient, services: FakeServices) -> None:
    text = '{"big":12345678901234567890123456789,"odd":"\\ud800"}'
    services.runs.items["0run1"] = make_run(result={"enc": "json", "text": text})
    assert text in client.get("/api/v1/runs/0run1").text


@pytest.mark.parametrize(
    ("result", "shown"),
    [
        ({"enc": "pickle", "text": "gASVAA=="}, {"enc": "pickle", "size": 8}),
        (
            {"enc": "json", "digest": "sha256:ab", "size": 99999},
            {"enc": "json", "digest": "sha256:ab", "size": 99999},
        ),
    ],
)
def test_a_result_that_is_not_inline_json_is_described(
    client: TestClient, services: FakeServices, result: Any, shown: Any
) -> None:
    services.runs.items["0run1"] = make_run(result=result)
    run = client.get("/api/v1/runs/0run1").json()
    assert (run["result"], run["result_form"]) == (shown, "reference")


def test_an_errors_pickle_never_leaves(client: TestClient, services: FakeServices) -> None:
    error = {"type": "ValueError", "message": "no", "traceback": "…", "pickle": "gASV"}
    services.runs.items["0run1"] = make_run(state="failed", result=None, error=error)
    assert "pickle" not in client.get("/api/v1/runs/0run1").json()["error"]


def test_runs_are_paged_by_cursor(client: TestClient, services: FakeServices) -> None:
    services.runs.items = {f"0r{i}": make_run(f"0r{i}") for i in range(5)}
    seen, cursor = [], None
    for _ in range(3):
        page = client.get("/api/v1/runs", params={"limit": 2} | ({"cursor": cursor} if cursor else {})).json()
        seen += [run["id"] for run in page["items"]]
        cursor = page["next"]
    assert seen == ["0r4", "0r3", "0r2", "0r1", "0r0"]
    assert cursor is None


@pytest.mark.parametrize("query", ["limit=0", "limit=100000", "limit=x", "state=none"])
def test_a_query_that_makes_no_sense_is_422(client: TestClient, query: str) -> None:
    assert problem_of(client.get(f"/api/v1/runs?{query}")) == (422, "invalid_request")


def test_log_lines_follow_a_number(client: TestClient, services: FakeServices) -> None:
    services.runs.lines = [LogLine(n, T0, f"line {n}", "stdout", "info", None, 1) for n in (1, 2, 5)]
    page = client.get("/api/v1/runs/0run1/logs", params={"after": 2}).json()
    assert [line["text"] for line in page["items"]] == ["line 5"]


def test_text_that_is_not_unicode_is_shown_all_the_same(client: TestClient, services: FakeServices) -> None:
    """B092: a lone surrogate in a line, a message or a name hurts nobody."""
    services.runs.lines = [LogLine(1, T0, "odd \ud800 byte", "stdout", "info", None, 1)]
    services.runs.items["0run1"] = make_run(message="odd \udfff", state="failed")
    assert client.get("/api/v1/runs/0run1/logs").json()["items"][0]["text"] == "odd \ufffd byte"
    assert client.get("/api/v1/runs/0run1").json()["message"] == "odd \ufffd"
    for path in ("/", "/runs/0run1", "/runs/0run1/lines", "/runs/0run1/log.txt"):
        assert client.get(path).status_code == 200


def test_tasks_show_their_values(client: TestClient, services: FakeServices) -> None:
    value = {"enc": "json", "text": "[1]"}
    services.runs.task_runs = [TaskRun("0run1", "k", 1, "fit", "completed", value=value)]
    assert client.get("/api/v1/runs/0run1/tasks").json()["items"][0]["value"] == [1]


@pytest.mark.parametrize("what", ["attempts", "metrics", "events", "artifacts"])
def test_the_other_parts_of_a_run_answer(client: TestClient, what: str) -> None:
    assert client.get(f"/api/v1/runs/0run1/{what}").status_code == 200
    assert problem_of(client.get(f"/api/v1/runs/0zz/{what}")) == (404, "not_found")


def test_cancelling_answers_202_and_a_finished_run_409(client: TestClient, services: FakeServices) -> None:
    assert problem_of(client.post("/api/v1/runs/0run1/cancel")) == (409, "conflict")
    services.runs.items["0run1"] = replace(make_run(), state="running")
    answer = client.post("/api/v1/runs/0run1/cancel")
    assert (answer.status_code, answer.json()["state"]) == (202, "cancelling")


def test_a_fault_of_our_own_says_nothing_of_itself(client: TestClient, services: FakeServices) -> None:
    for fault in (RuntimeError("SELECT password"), FarhandError("SELECT password")):
        services.runs.fails = fault
        answer = client.get("/api/v1/runs/0run1")
        assert problem_of(answer) == (500, "internal")
        assert "password" not in answer.text


def test_a_store_that_fails_is_503(client: TestClient, services: FakeServices) -> None:
    services.runs.fails = StoreFailed("disk full")
    assert problem_of(client.get("/api/v1/runs/0run1")) == (503, "store_failed")
    assert problem_of(client.get("/readyz")) == (503, "store_failed")
    assert client.get("/healthz").status_code == 200


def test_a_server_that_reads_its_flows_is_not_ready(client: TestClient, services: FakeServices) -> None:
    services.ready = False
    assert problem_of(client.get("/readyz")) == (503, "starting")
    assert client.get("/healthz").status_code == 200


def test_a_token_is_minted_listed_and_revoked(client: TestClient) -> None:
    body = {"name": "gpu1", "labels": ["gpu", "zone=eu"], "expires_s": 60}
    minted = client.post("/api/v1/workers/tokens", json=body)
    assert minted.status_code == 201
    jti = minted.json()["jti"]
    assert minted.json()["token"] == f"text-of-{jti}"
    listed = client.get("/api/v1/workers/tokens")
    assert "text-of" not in listed.text
    assert listed.json()["items"][0]["labels"] == ["gpu", "zone=eu"]
    assert client.post(f"/api/v1/workers/tokens/{jti}/revoke").json()["changed"] is True
    assert client.post(f"/api/v1/workers/tokens/{jti}/revoke").json()["changed"] is False
    assert problem_of(client.post("/api/v1/workers/tokens/none/revoke")) == (404, "not_found")


def test_what_should_have_been_a_list_is_told_in_words_of_json(client: TestClient) -> None:
    answer = client.post("/api/v1/workers/tokens", json={"name": "mill", "labels": "gpu"})
    assert answer.json()["detail"] == "labels: Input should be a valid list"


@pytest.mark.parametrize(
    "body", [{}, {"name": "UPPER"}, {"name": "x", "role": "god"}, {"name": "x", "expires_s": 0}]
)
def test_a_token_that_cannot_be_is_422(client: TestClient, body: Any) -> None:
    assert problem_of(client.post("/api/v1/workers/tokens", json=body)) == (422, "invalid_request")


def test_the_runtime_is_served_under_its_digest(app: Any, services: FakeServices) -> None:
    answer = caller(app, WORKER).get("/api/v1/workers/runtime")
    assert answer.content == b"PK the runtime"
    assert digest_of(answer.content) == answer.headers["farhand-digest"] == services.runtime
    asked = caller(app, WORKER).get("/api/v1/workers/runtime", headers={"Range": "bytes=0-0"})
    assert (asked.status_code, asked.content, asked.headers["farhand-digest"]) == (
        206,
        b"P",
        services.runtime,
    )


def test_an_artifact_goes_in_and_comes_out(client: TestClient) -> None:
    content = b"0123456789"
    path = f"/api/v1/artifacts/{digest_of(content)}"
    assert problem_of(client.get(path)) == (404, "not_found")
    assert client.put(path, content=content).status_code == 201
    assert client.put(path, content=content).status_code == 200
    answer = client.get(path)
    assert answer.content == content
    assert answer.headers["content-disposition"].startswith("attachment")
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert "sandbox" in answer.headers["content-security-policy"]
    head = client.head(path)
    assert (head.headers["content-length"], head.content) == ("10", b"")
    part = client.get(path, headers={"Range": "bytes=2-4"})
    assert (part.status_code, part.content) == (206, b"234")


def test_other_bytes_than_the_digests_are_refused(client: TestClient) -> None:
    path = f"/api/v1/artifacts/{digest_of(b'right')}"
    assert problem_of(client.put(path, content=b"wrong")) == (422, "digest_mismatch")
    assert client.get(path).status_code == 404


def test_a_digest_that_is_none_is_refused(client: TestClient) -> None:
    assert client.get("/api/v1/artifacts/..%2f..%2fetc%2fpasswd").status_code == 404
    assert problem_of(client.get("/api/v1/artifacts/passwd")) == (400, "usage")


def test_the_description_names_every_route(client: TestClient) -> None:
    paths = client.get("/api/v1/openapi.json").json()["paths"]
    assert {"/api/v1/flows/{name}/runs", "/api/v1/runs/{id}/logs", "/api/v1/stream", "/healthz"} <= set(paths)
    assert not [path for path in paths if path.startswith(("/fragments", "/runs"))]


def test_an_image_is_shown_in_a_sandbox_and_the_rest_is_saved(app: Any, services: FakeServices) -> None:
    svg = b"<svg xmlns='http://www.w3.org/2000/svg'><script>alert(1)</script></svg>"
    digest = services.blobs.put_bytes(svg)
    services.runs.saved = [
        Artifact(1, "0run1", "chart.svg", digest, len(svg), "image/svg+xml", T0),
        Artifact(2, "0run1", "page.html", digest, len(svg), "text/html", T0),
    ]
    client = caller(app, ADMIN)
    shown = client.get("/runs/0run1/artifacts/1").headers
    assert shown["content-type"] == "image/svg+xml"
    assert shown["content-disposition"].startswith("inline")
    assert shown["content-security-policy"].startswith("sandbox; default-src 'none'")
    saved = client.get("/runs/0run1/artifacts/2").headers
    assert saved["content-type"] == "application/octet-stream"
    assert saved["content-disposition"] == 'attachment; filename="page.html"'
    assert client.get("/runs/0run1/artifacts/3").status_code == 404


def test_every_list_is_described_as_it_is_answered(client: TestClient) -> None:
    described = client.get("/api/v1/openapi.json").json()
    checked = 0
    for path, methods in described["paths"].items():
        content = methods.get("get", {}).get("responses", {}).get("200", {}).get("content", {})
        schema = content.get("application/json", {}).get("schema", {})
        name = schema.get("$ref", "").rpartition("/")[2]
        assert schema.get("type") != "array", path
        if name.startswith("Page_"):
            checked += 1
            answer = client.get(path.replace("{id}", "0run1").replace("{name}", "gpu1")).json()
            assert set(described["components"]["schemas"][name]["properties"]) == set(answer)
    assert checked >= 9


def test_a_run_is_retried_from_where_it_is_asked(client: TestClient) -> None:
    answer = client.post("/api/v1/runs/0run1/retry", json={"from": "fit", "params": {"lr": 1}})
    assert answer.status_code == 202
    run = answer.json()
    assert (run["retry_of"], run["reason"], run["params"]) == ("0run1", "fit", {"lr": 1})
    assert client.post("/api/v1/runs/0run1/retry").json()["reason"] == "failure"
    assert client.post("/api/v1/runs/0run1/retry", json={"from": ""}).status_code == 422


def fetched(client: TestClient, code: str) -> Any:
    """The worker's program, asked for with an invitation."""
    return client.get("/api/v1/workers/agent.pyz", headers={"Authorization": f"Invitation {code}"})


def test_an_invitation_is_made_by_an_admin_and_exchanged_by_whoever_has_the_code(
    app: Any, services: FakeServices
) -> None:
    made = caller(app, "admin-secret").post(
        "/api/v1/workers/invitations", json={"name": "gpu7", "labels": ["gpu"], "valid_s": 60}
    )
    assert made.status_code == 201
    code = made.json()["code"]
    assert made.json()["pin"] == ""
    outside = caller(app)
    refused = outside.post("/api/v1/workers/join", json={"code": code})
    assert problem_of(refused) == (403, "not_encrypted")
    over_tls = TestClient(app, base_url="https://127.0.0.1:8420")
    assert problem_of(fetched(outside, code)) == (403, "not_encrypted")
    assert problem_of(fetched(over_tls, "made-up")) == (403, "not_invited")
    assert fetched(over_tls, code).content[:2] == b"#!", "the program, and the code is still good"
    bought = over_tls.post("/api/v1/workers/join", json={"code": code})
    assert (bought.json()["name"], bought.json()["labels"]) == ("gpu7", ["gpu"])
    assert problem_of(fetched(over_tls, code)) == (403, "not_invited")
    again = over_tls.post("/api/v1/workers/join", json={"code": code})
    assert problem_of(again) == (403, "not_invited")
    told = [(entry.action, entry.role, entry.subject) for entry in services.audit.items]
    assert told == [("invite_worker", "admin", "gpu7"), ("join", "worker", "gpu7")]
    assert code not in repr(services.audit.items)
