"""The doctor names what is wrong, and shows no secret."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import pytest

from farhand import config
from farhand.engine import doctor
from farhand.engine.audit import Audit
from farhand.engine.doctor import ERROR, WARNING, Doctor, Finding
from farhand.engine.fleet import Fleet
from farhand.engine.masking import Masker
from farhand.engine.member import LOST, ONLINE
from farhand.engine.secrets import Secrets
from farhand.model import Project, Trouble
from farhand.store import Store, StoreState
from farhand_worker.protocol import Times

pytestmark = pytest.mark.anyio
GIB = 1024**3


@pytest.fixture
def fleet() -> Fleet:
    return Fleet(Times())


@pytest.fixture
def examiner(store: Store, tmp_path: Path, fleet: Fleet) -> Doctor:
    masker = Masker()
    return Doctor(store, tmp_path, fleet, Secrets(store, tmp_path, masker, Audit(store, masker), {}))


async def test_a_sound_server_has_nothing_wrong(examiner: Doctor, fleet: Fleet) -> None:
    member = fleet.member("box")
    member.state, member.parallel, member.skew_s = ONLINE, 2, 0.1
    report = await examiner.report()
    assert [finding for finding in report.findings if finding.about != "disk"] == []
    assert report.capacity["slots"] == 2
    assert report.versions["python"]
    if report.store["dialect"] == "sqlite":
        details = report.store["details"]
        assert (details["journal_mode"], details["quick_check"]) == ("wal", "ok")
        assert details["page_count"] * details["page_size"] <= details["size"] + details["wal_size"]


async def test_clocks_that_differ_and_workers_that_are_gone_are_named(examiner: Doctor, fleet: Fleet) -> None:
    ahead, gone = fleet.member("ahead"), fleet.member("gone")
    ahead.state, ahead.skew_s, gone.state = ONLINE, 3600.0, LOST
    told = [(finding.level, finding.about, finding.message) for finding in (await examiner.report()).findings]
    told = [each for each in told if each[1] != "disk"]
    assert [level for level, *_ in told] == [WARNING] * 3
    assert "no worker with a slot" in told[0][2]
    assert "the clock of ahead is 3600 s ahead of this one" in told[1][2]
    assert "gone is not heard of" in told[2][2]


def test_a_store_that_is_damaged_is_an_error() -> None:
    details = {"journal_mode": "delete", "wal_size": GIB}
    state = StoreState("sqlite", "3", "x", details, ("Page 3 is never used",))
    found = list(doctor.of_store(state))
    assert [finding.level for finding in found] == [ERROR, ERROR, WARNING]
    assert "Page 3 is never used" in found[0].message


@pytest.mark.parametrize(("free", "levels"), [(2 * GIB, []), (GIB // 2, [WARNING]), (1000, [ERROR])])
def test_a_full_disk_is_named(free: int, levels: list[str]) -> None:
    disk = {"home": "h", "total": 10 * GIB, "free": free}
    assert [finding.level for finding in doctor.of_disk(disk)] == levels


def test_a_key_that_others_may_read_is_an_error(tmp_path: Path) -> None:
    key = tmp_path / "secret-key"
    key.write_text("x")
    key.chmod(0o600)
    assert list(doctor.of_home(tmp_path)) == []
    key.chmod(0o644)
    (found,) = doctor.of_home(tmp_path)
    assert found.level == ERROR
    assert "mode 644" in found.message


def test_settings_are_shown_with_their_source_and_without_secrets(tmp_path: Path) -> None:
    environment = {
        "FARHAND_PORT": "9000",
        "FARHAND_DATABASE": "postgresql://me:hunter2@host/name?password=hunter2",
        "FARHAND_ADMIN_TOKEN": "hunter2",
        "FARHAND_SEALING_KEY_FILE": "hunter2",
    }
    read = config.load({"home": tmp_path}, environment=environment)
    shown = {name: (value, source) for name, value, source in config.shown(read, environment)}
    assert shown["port"] == ("9000", "environment")
    assert shown["home"] == (str(tmp_path), "flag")
    assert shown["lease_s"] == ("15", "default")
    assert shown["admin_token"] == (config.HIDDEN, "environment")
    assert shown.keys() >= {setting.name for setting in config.SETTINGS}
    assert "hunter2" not in repr(shown)


@pytest.mark.parametrize(
    ("name", "given", "text"),
    [
        ("keep", "30d", "30d"),
        ("keep", "90m", "90m"),
        ("keep", 0, "0"),
        ("keep", 1.5, "1.5"),
        ("lease_s", "1m", "60"),
        ("engine_memory", "2G", "2G"),
        ("engine_memory", "1.5G", "1536M"),
    ],
)
def test_sizes_and_durations_are_shown_as_one_would_write_them(name: str, given: object, text: str) -> None:
    read = config.load({name: given})
    assert {name: value for name, value, _ in config.shown(read, {})}[name] == text


async def test_what_a_project_cannot_offer_is_a_warning(examiner: Doctor, store: Store) -> None:
    trouble = Trouble("broken.py", "SyntaxError: no")
    await store.projects.replace(Project("sums", "served", "/flows", "", 0, 0, (trouble,)), [], [], 1.0)
    assert (
        Finding(WARNING, "projects", "broken.py of sums is not offered: SyntaxError: no")
        in (await examiner.report()).findings
    )


async def test_the_report_can_be_sent(examiner: Doctor) -> None:
    assert asdict(await examiner.report())["at"] > 0
