"""``farhand doctor``: what is wrong with this machine and its server."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from ..errors import StoreDamaged, StoreLocked, Unreachable
from ..sizes import size
from .home import home_of
from .options import home_option, insecure_option, json_option, url_option
from .output import print_facts, print_json, print_table
from .program import finish


@click.command()
@url_option
@home_option
@insecure_option
@json_option
def doctor(url: str | None, home: Path | None, insecure: bool, as_json: bool) -> None:
    """Look for what is wrong, and show what everything runs on.

    A server is asked for its settings and where each comes from, its versions, its store's own check, disk,
    capacity and its workers' clocks. Where none runs, this machine and the home are looked at alone. Ends
    with 1 when something is wrong; a warning is no error.
    """
    from ..engine.doctor import ERROR

    try:
        report = _of_server(url, home, insecure)
    except Unreachable as error:
        if url is not None:
            raise
        report = _of_machine(home_of(home), str(error))
    if as_json:
        print_json(report)
    else:
        _print(report)
    finish(1 if any(finding["level"] == ERROR for finding in report["findings"]) else 0)


def _of_server(url: str | None, home: Path | None, insecure: bool) -> dict[str, Any]:
    from .client import find

    with find(url, home, insecure) as client:
        return client.get("/doctor")


def _of_machine(home: Path, why: str) -> dict[str, Any]:
    """What can be said without a server."""
    from .. import config
    from ..engine import doctor as seen

    settings = config.load({"home": home})
    report: dict[str, Any] = {
        "settings": [asdict(seen.SettingShown(*row)) for row in config.shown(settings)],
        "versions": seen.versions(),
        "store": {},
        "disk": {},
        "capacity": seen.capacity_of_machine(),
        "workers": [],
    }
    findings = [seen.Finding(seen.WARNING, "server", why)]
    if home.exists():
        if not settings.database:
            report["store"], wrong = _store_of(home)
            findings += wrong
        report["disk"] = seen.disk_of(home)
        findings += [*seen.of_disk(report["disk"]), *seen.of_home(home)]
    return report | {"findings": [asdict(finding) for finding in findings]}


def _store_of(home: Path) -> tuple[dict[str, Any], list[Any]]:
    """What can be said of a store that no server has open, and what is wrong with it."""
    from ..engine import doctor as seen
    from ..engine.backup import STORE
    from ..store.state import examine_at_rest

    try:
        state = examine_at_rest(home / STORE)
    except StoreDamaged as error:
        return {}, [seen.Finding(seen.ERROR, "store", str(error))]
    except StoreLocked as error:
        return {}, [seen.Finding(seen.WARNING, "store", f"it was not examined: {error}")]
    return ({}, []) if state is None else (asdict(state), list(seen.of_store(state)))


def _print(report: dict[str, Any]) -> None:
    rows = [(s["name"], s["value"] or "-", s["source"]) for s in report["settings"]]
    print_table(("setting", "value", "source"), rows)
    store = report["store"]
    facts = {name: str(value) for name, value in store.items() if isinstance(value, str)}
    for title, part in (
        ("Versions", report["versions"]),
        ("Store", facts | store.get("details", {})),
        ("Disk", report["disk"]),
        ("Capacity", report["capacity"]),
    ):
        if part:
            click.echo(f"\n{title}")
            print_facts({name.replace("_", " "): _told(name, value) for name, value in part.items()})
    if report["workers"]:
        click.echo("")
        clocks = [(w["name"], w["state"], _skew(w["skew_s"])) for w in report["workers"]]
        print_table(("worker", "state", "clock"), clocks)
    click.echo("")
    for finding in report["findings"]:
        click.echo(f"{finding['level']}: {finding['about']}: {finding['message']}")
    if not report["findings"]:
        click.echo("Nothing is wrong.")


_BYTES = frozenset({"size", "wal_size", "total", "free", "memory", "memory_free"})


def _told(name: str, value: Any) -> str:
    return size(value) if name in _BYTES else str(value)


def _skew(skew_s: float | None) -> str:
    return "not told" if skew_s is None else f"{skew_s:+.2f} s"
