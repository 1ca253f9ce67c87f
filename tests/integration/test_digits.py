"""The example that trains on scikit-learn's digits, as a sweep on a real server."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.harness.deployment import deployed, environment

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "digits"


def test_a_sweep_over_the_digits_streams_its_loss_and_ends_with_an_accuracy(tmp_path: Path) -> None:
    pytest.importorskip("sklearn", reason="scikit-learn is not installed (extra: examples)")
    with deployed(tmp_path, project=EXAMPLE) as deployment:
        asked = ["sweep", "train", "-p", "lr=0.01,0.001", "-p", "seed=1..2", "-p", "epochs=3", "--json"]
        done = subprocess.run(
            [sys.executable, "-m", "farhand", *asked],
            env=environment(deployment.home, deployment.times),
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        runs = json.loads(done.stdout)["runs"]
        assert len(runs) == 4
        best = max(run["result"]["accuracy"] for run in runs)
        assert best > 0.9
        for run in runs:
            series = {s["name"]: s for s in deployment.items(f"/runs/{run['id']}/metrics/summary")}
            assert series["loss"]["count"] == 3
            assert series["accuracy"]["last"] == pytest.approx(run["result"]["accuracy"], abs=1e-4)
