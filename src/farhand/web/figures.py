"""The server's figures as families of Prometheus."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4

from ..engine.member import Member
from ..engine.services import Services

CONTENT_TYPE = CONTENT_TYPE_PLAIN_0_0_4


def render(services: Services, runs: dict[str, int]) -> bytes:
    """The figures as text; ``runs`` counts those that have not ended, by state."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Figures(services, runs))
    return generate_latest(registry)


class _Figures:
    """Collects once, from what the services have counted."""

    def __init__(self, services: Services, runs: dict[str, int]) -> None:
        self._services = services
        self._runs = runs

    def describe(self) -> list[Any]:
        """Nothing beforehand: this is registered for one scrape."""
        return []

    def collect(self) -> Iterator[Any]:
        """Every family of figures."""
        services, vitals = self._services, self._services.vitals
        database = services.store.database
        open_runs = GaugeMetricFamily("farhand_runs_open", "Runs that have not ended.", labels=["state"])
        for state, count in self._runs.items():
            open_runs.add_metric([state], count)
        yield open_runs
        ended = CounterMetricFamily(
            "farhand_runs_ended", "Runs that ended since the server started.", labels=["state"]
        )
        for state, count in sorted(vitals.ended.items()):
            ended.add_metric([state], count)
        yield ended
        yield GaugeMetricFamily("farhand_queue_jobs", "Jobs that are queued.", value=len(services.queue))
        workers = GaugeMetricFamily("farhand_workers", "Workers, by state.", labels=["state"])
        for state, count in sorted(Counter(member.state for member in services.fleet).items()):
            workers.add_metric([state], count)
        yield workers
        slots = GaugeMetricFamily("farhand_slots", "Slots of attached workers.", labels=["kind"])
        slots.add_metric(["all"], sum(member.parallel for member in services.fleet if member.link))
        slots.add_metric(["taken"], sum(member.busy for member in services.fleet if member.link))
        yield slots
        yield from self._by_worker()
        yield HistogramMetricFamily(
            "farhand_dispatch_seconds",
            "From a job being due to its first hand-off.",
            buckets=[(_bound(bound), count) for bound, count in vitals.dispatch.cumulative()],
            sum_value=vitals.dispatch.sum,
        )
        yield CounterMetricFamily("farhand_store_commits", "Commits of the store.", value=database.commits)
        yield CounterMetricFamily(
            "farhand_store_operations",
            "Writes that those commits held; operations by commits is the size of a batch.",
            value=database.operations,
        )
        yield GaugeMetricFamily(
            "farhand_loop_lag_seconds",
            "The longest the event loop was late by since the last scrape.",
            value=vitals.take_lag(),
        )

    def _by_worker(self) -> Iterator[Any]:
        """What is known of each worker, and what happened to all of them."""
        by_worker: tuple[tuple[str, str, Callable[[Member], float]], ...] = (
            ("up", "1 while a session with the worker stands.", lambda m: int(m.link is not None)),
            ("draining", "1 while the worker is handed nothing new.", lambda m: int(m.draining)),
            ("slots", "Slots of the worker.", lambda m: m.parallel),
            ("slots_taken", "Slots of the worker that are taken.", lambda m: m.busy),
            ("heard_seconds", "How long ago the worker was last heard.", _heard_s),
        )
        members = sorted(self._services.fleet, key=lambda member: member.name)
        for name, meaning, figure in by_worker:
            family = GaugeMetricFamily(f"farhand_worker_{name}", meaning, labels=["worker"])
            for member in members:
                family.add_metric([member.name], figure(member))
            yield family
        events = CounterMetricFamily(
            "farhand_worker_events", "Events of workers since the server started.", labels=["kind"]
        )
        for kind, count in sorted(self._services.worker_events.told.items()):
            events.add_metric([kind], count)
        yield events


def _heard_s(member: Member) -> float:
    return math.nan if member.heard_at is None else time.monotonic() - member.heard_at


def _bound(bound: float) -> str:
    return "+Inf" if math.isinf(bound) else str(bound)
