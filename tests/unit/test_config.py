"""Where a setting's value comes from, and what is said about one that cannot be used."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from farhand.config import SETTINGS, load
from farhand.errors import Usage
from farhand_worker.protocol import Times


def project(tmp_path: Path, text: str) -> Path:
    (tmp_path / "farhand.toml").write_text(text)
    return tmp_path


def test_a_flag_wins_over_the_environment_over_the_file_over_the_default(tmp_path: Path) -> None:
    root = project(tmp_path, "[server]\nport = 3\nhost = 'file'\nparallel = 3\n")
    environment = {"FARHAND_PORT": "2", "FARHAND_HOST": "environment"}
    config = load({"port": 1, "host": None}, root=root, environment=environment)
    assert (config.port, config.host, config.parallel) == (1, "environment", 3)
    assert [config.sources[name] for name in ("port", "host", "parallel", "base_path")] == [
        "flag",
        "environment",
        "farhand.toml",
        "default",
    ]


def test_without_anything_given_every_setting_has_its_default() -> None:
    config = load(environment={})
    assert config.times == Times()
    assert config.host == "127.0.0.1"
    assert config.port == 8420
    assert config.parallel >= 1
    assert config.home == Path("~/.farhand").expanduser()
    assert set(config.sources) == {setting.name for setting in SETTINGS}
    assert set(config.sources.values()) == {"default"}


def test_every_setting_has_a_variable_and_a_sentence() -> None:
    for setting in SETTINGS:
        assert setting.variable == f"FARHAND_{setting.name.upper()}"
        assert setting.help.endswith(".")
    assert len({setting.name for setting in SETTINGS}) == len(SETTINGS)


@pytest.mark.parametrize(
    ("name", "given", "found"),
    [
        ("base_path", "/flows/", "/flows"),
        ("base_path", "a/b", "/a/b"),
        ("base_path", "/", ""),
        ("services_host", "*.Apps.example.org.", "apps.example.org"),
        ("services_host", "", ""),
        ("port", "0", 0),
        ("parallel", "0", 0),
    ],
)
def test_a_value_is_read_as(name: str, given: str, found: Any) -> None:
    assert getattr(load({name: given}, environment={}), name) == found


@pytest.mark.parametrize(
    ("given", "seconds"), [("500ms", 0.5), ("2m", 120.0), (4, 4.0), (0.25, 0.25), ("1.5", 1.5)]
)
def test_a_time_takes_a_number_or_a_string_with_a_unit(given: Any, seconds: float) -> None:
    assert load({"outage_s": given}, environment={}).times.outage_s == seconds


def test_a_relative_home_becomes_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert load({"home": "here"}, environment={}).home == tmp_path / "here"


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("port", "many", "'many' is not a whole number"),
        ("parallel", "1.5", "not a whole number"),
        ("port", 65536, "between 0 and 65535"),
        ("port", -1, "between 0 and 65535"),
        ("parallel", "-1", "below zero"),
        ("lease_s", "soon", "not a duration"),
        ("lease_s", -3, "not a duration"),
        ("heartbeat_s", 0, "more than 0 seconds"),
        ("handoff_s", "0s", "more than 0 seconds"),
    ],
)
def test_a_bad_value_is_refused_naming_setting_and_source(name: str, value: Any, words: str) -> None:
    with pytest.raises(Usage, match=words) as refusal:
        load({name: value}, environment={})
    assert str(refusal.value).startswith(f"--{name.replace('_', '-')}: {value!r} ")
    with pytest.raises(Usage, match=f"FARHAND_{name.upper()}: "):
        load(environment={f"FARHAND_{name.upper()}": str(value)})


def test_a_lease_that_ends_before_the_next_heartbeat_is_refused() -> None:
    with pytest.raises(Usage, match=r"lease_s \(2\) must be longer than heartbeat_s \(3\)"):
        load({"lease_s": 2}, environment={})


def test_an_outage_of_nothing_turns_riding_out_off() -> None:
    assert load({"outage_s": 0}, environment={}).times.outage_s == 0.0


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[server]\nprot = 1\nhots = 2\n", "unknown settings under .server.: hots, prot"),
        ("[server\n", "cannot be read"),
        ("server = 3\n", "no table"),
    ],
)
def test_a_file_that_cannot_be_used_is_named(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(Usage, match=words) as refusal:
        load(root=project(tmp_path, text), environment={})
    assert str(tmp_path / "farhand.toml") in str(refusal.value)


def test_a_file_that_is_no_text_is_named(tmp_path: Path) -> None:
    (tmp_path / "farhand.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(Usage, match="cannot be read"):
        load(root=tmp_path, environment={})


def test_other_tables_of_the_file_are_left_alone(tmp_path: Path) -> None:
    root = project(tmp_path, "[project]\nname = 'weather'\n")
    assert load(root=root, environment={}).sources["port"] == "default"


def test_a_bad_value_in_the_file_is_refused_naming_the_file(tmp_path: Path) -> None:
    with pytest.raises(Usage, match=r"^port in farhand.toml: 'many' is not a whole number$"):
        load(root=project(tmp_path, "[server]\nport = 'many'\n"), environment={})
