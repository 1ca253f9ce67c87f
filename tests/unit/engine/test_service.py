"""A background loop: started once, stopped at any time, never ended quietly."""

from __future__ import annotations

import asyncio
import logging

import pytest
from anyio import Event, fail_after

from farhand.engine.service import Service, Wakeup, delay_until

pytestmark = pytest.mark.anyio


class Working(Service):
    name = "working"
    _restart_s = 0.0

    def __init__(self, failures: int = 0) -> None:
        super().__init__()
        self.begun = 0
        self.failures = failures
        self.running = Event()

    async def _work(self) -> None:
        self.begun += 1
        if self.begun <= self.failures:
            raise ZeroDivisionError
        self.running.set()
        await asyncio.Event().wait()


async def test_stopping_is_legal_before_the_start_and_twice() -> None:
    service = Working()
    await service.stop()
    service.start()
    with fail_after(5):
        await service.running.wait()
        await service.stop()
        await service.stop()


async def test_starting_twice_starts_once_and_a_stopped_service_may_start_again() -> None:
    service = Working()
    with fail_after(5):
        service.start()
        service.start()
        await service.running.wait()
        assert service.begun == 1
        await service.stop()
        service.running = Event()
        service.start()
        await service.running.wait()
        await service.stop()
    assert service.begun == 2


async def test_a_loop_that_fails_says_so_and_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    service = Working(failures=3)
    service.start()
    with fail_after(5), caplog.at_level(logging.ERROR, "farhand"):
        await service.running.wait()
        await service.stop()
    assert service.begun == 4
    assert [record.getMessage() for record in caplog.records] == ["working failed; it goes on in 0.0 s"] * 3


async def test_a_start_and_a_stop_at_once_end_stopped() -> None:
    for _ in range(50):
        service = Working()
        service.start()
        await service.stop()
        assert service._task is None


async def test_a_wakeup_before_the_wait_is_not_forgotten_and_counts_once() -> None:
    wakeup = Wakeup()
    wakeup.set()
    wakeup.set()
    with fail_after(5):
        await wakeup.wait()
        await wakeup.wait(0.0)
    with pytest.raises(TimeoutError), fail_after(0.01):
        await wakeup.wait()


@pytest.mark.parametrize(("moment", "delay_s"), [(None, None), (12.0, 2.0), (10.0, 0.0), (3.0, 0.0)])
def test_a_delay_is_the_time_until_its_moment(moment: float | None, delay_s: float | None) -> None:
    assert delay_until(moment, lambda: 10.0) == delay_s


async def test_a_loop_that_waited_for_what_was_cancelled_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    class Waiting(Working):
        async def _work(self) -> None:
            if not self.begun:
                self.begun += 1
                other = asyncio.ensure_future(asyncio.Event().wait())
                asyncio.get_running_loop().call_soon(other.cancel)
                await other
            await super()._work()

    service = Waiting()
    with fail_after(5):
        service.start()
        await service.running.wait()
        await service.stop()
    assert "working waited for what was cancelled" in caplog.text
