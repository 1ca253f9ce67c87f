"""3.47 to 3.49: large values to and from another machine, over links that break and on disks that fill."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.harness.deployment import Deployment, deployed
from tests.harness.disks import small_disk
from tests.harness.proxy import TO_SERVER, Proxy
from tests.harness.waiting import eventually

MB = 1024 * 1024


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    """One server for all of these."""
    with deployed(tmp_path_factory.mktemp("artifacts")) as running:
        yield running


@pytest.mark.fault("3.49")
@pytest.mark.fault("3.47")
def test_20_mb_come_and_go_over_a_link_that_breaks_in_the_middle(server: Deployment) -> None:
    proxy = Proxy(server.port)
    worker = server.worker("mill", "demo", url=proxy.url)
    try:
        run = server.start_run("bulky", size=20 * MB)
        eventually(lambda: proxy.forwarded[TO_SERVER] > 9 * MB, 30, "half of it has been sent")
        proxy.reset()
        ended = server.wait_for_run(run, "completed")
        assert ended["result"] == 20 * MB
        assert ended["attempt"] == 1
        assert proxy.forwarded[TO_SERVER] < 20 * MB + 9 * MB, "it went on where it was cut"
    finally:
        worker.clear()
        proxy.close()


@pytest.mark.fault("3.48")
def test_a_worker_whose_disk_is_full_says_so_and_goes_on(server: Deployment) -> None:
    with small_disk(server.directory / "kiln" / "state", 12):
        worker = server.worker("kiln", "demo")
        try:
            server.wait_for_run(server.start_run("bulky", size=1000), "completed")
            failed = server.wait_for_run(server.start_run("bulky", size=20 * MB), "failed")
            assert "No space left on device" in failed["message"]
            server.wait_for_run(server.start_run("bulky", size=1000), "completed")
            assert server.worker_state("kiln") == "online"
        finally:
            worker.clear()
