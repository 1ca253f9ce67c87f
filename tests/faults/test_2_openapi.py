"""2.32: whatever is sent to the API, nothing of it makes the server fail."""

from __future__ import annotations

from typing import Any

import hypothesis
import pytest

from tests.harness.deployment import Deployment

EXAMPLES = 8
"""How many requests an operation gets. A number, not a time: a slow machine tests as much as a fast one.

They are others in every run."""

ENDLESS = ("/stream", "/rotate-key")
"""A stream has no end, and a new signing key would take the token that asks."""


class Prober:
    """Sends what the API's description allows, and what it forbids, and notes every failure."""

    def __init__(self, deployment: Deployment, run_id: str) -> None:
        self.headers = {"Authorization": deployment.client.headers["Authorization"]}
        self.run_id = run_id
        self.sent = 0
        self.failures: list[str] = []

    def probe(self, operation: Any) -> None:
        """Send to one operation what it allows, and what it does not."""
        from schemathesis import GenerationMode

        modes = (GenerationMode.POSITIVE, GenerationMode.NEGATIVE)
        cases = hypothesis.strategies.one_of(*(operation.as_strategy(generation_mode=mode) for mode in modes))
        hypothesis.settings(
            max_examples=EXAMPLES,
            deadline=None,
            database=None,
            phases=[hypothesis.Phase.generate],
            suppress_health_check=list(hypothesis.HealthCheck),
        )(hypothesis.given(case=cases)(self._send))()

    def _send(self, case: Any) -> None:
        if "id" in (case.path_parameters or {}) and self.sent % 2 and case.method != "DELETE":
            case.path_parameters["id"] = self.run_id
        response = case.call(headers=self.headers, timeout=10)
        self.sent += 1
        if response.status_code >= 500:
            self.failures.append(f"{case.method} {response.request.url} {response.status_code}")


@pytest.mark.fault("2.32")
@pytest.mark.filterwarnings("ignore")
def test_no_request_makes_the_server_fail(deployment: Deployment) -> None:
    schemathesis = pytest.importorskip("schemathesis", reason="schemathesis is not installed")
    run_id = deployment.start_run("three_steps", path=str(deployment.directory / "steps"))
    deployment.wait_for_run(run_id)
    schema = schemathesis.openapi.from_dict(deployment.get("/openapi.json"))
    schema.config.base_url = deployment.url
    found = [result.ok() for result in schema.get_all_operations()]
    operations = [operation for operation in found if not operation.path.endswith(ENDLESS)]
    assert len(operations) > 25
    prober = Prober(deployment, run_id)
    for operation in operations:
        prober.probe(operation)
    assert prober.failures == []
    assert prober.sent >= EXAMPLES / 2 * len(operations)
    again = deployment.start_run("three_steps", path=str(deployment.directory / "steps"))
    assert deployment.wait_for_run(again)["state"] == "completed", "the server is as well as before"
