"""3.17: an import that takes a minute is too slow, not missing, and its worker is never lost."""

from __future__ import annotations

from pathlib import Path

import pytest

from farhand_worker.protocol import Times
from tests.harness.deployment import deployed
from tests.harness.waiting import eventually

IMPORT_S = 6.0
"""A tenth of a minute, and longer than a lease."""

TIMES = Times().scaled(0.3)

HEAD = "from farhand import flow\nimport weighty\n"
FLOW = HEAD + "@flow(runs_on='worker')\ndef heavy():\n    return weighty.NAME\n"
SLOW = f"import time\ntime.sleep({IMPORT_S})\nNAME = 'slow'\n"
QUICK = "NAME = 'quick'\n"


def package(directory: Path, text: str) -> Path:
    """A module that is installed on a machine."""
    directory.mkdir(exist_ok=True)
    (directory / "weighty.py").write_text(text)
    return directory


@pytest.mark.fault("3.17")
def test_an_import_of_a_minute_is_too_slow_until_it_is_quick_enough(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "project").mkdir()
    (tmp_path / "project" / "heavy.py").write_text(FLOW)
    monkeypatch.setenv("PYTHONPATH", str(package(tmp_path / "servers", QUICK)))
    settings = {"FARHAND_IMPORT_TIMEOUT_S": "2", "FARHAND_IMPORT_AGAIN_S": "0.5"}
    with deployed(tmp_path, project=tmp_path / "project", times=TIMES, settings=settings) as server:
        packages = package(tmp_path / "workers", SLOW)
        worker = server.worker("box", packages=packages)
        run = server.start_run("heavy")

        def too_slow() -> str:
            considered = server.get(f"/runs/{run}/why")["considered"]
            return next((each["message"] for each in considered if each["code"] == "import_slow"), "")

        assert "took too long to import heavy" in eventually(too_slow, what="why says that it is too slow")
        first = "it is tried again after 0.5 s"
        later = eventually(
            lambda: (told := too_slow()) and first not in told and told, what="it takes longer"
        )
        assert "it is tried again after" in later
        assert server.run(run)["state"] == "queued"
        package(packages, QUICK)
        ended = server.wait_for_run(run, "completed")
        assert (ended["result"], ended["worker"], ended["attempt"]) == ("quick", "box", 1)

        kinds = [event["kind"] for event in server.items("/events", worker="box", kind="worker.")]
        assert "worker.lost" not in kinds
        assert worker.text().count("attached to") == 1
