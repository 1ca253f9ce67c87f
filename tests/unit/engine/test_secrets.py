"""Secrets are sealed, given to who declares them, and recorded; variables are plain."""

from __future__ import annotations

import base64
import json
import stat
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from farhand.engine.audit import Audit, outcome_of
from farhand.engine.masking import MASK, Masker
from farhand.engine.roles import Identity
from farhand.engine.secrets import VALUE_BYTES_MAX, Secrets
from farhand.engine.variables import Variables
from farhand.errors import Conflict, Forbidden, NotFound, Usage
from farhand.model import AuditEntry, Job, JobSettings
from farhand.store import Store
from tests.unit.engine.records import a_job

pytestmark = pytest.mark.anyio
VALUE = "hunter2-hunter2"


class Vault:
    """Secrets over a real store, with what they tell."""

    def __init__(self, store: Store, home: Path, environment: dict[str, str] | None = None) -> None:
        home.mkdir(exist_ok=True)
        self.masker = Masker()
        self.audit = Audit(store, self.masker)
        self.secrets = Secrets(store, home, self.masker, self.audit, environment or {})

    async def entries(self) -> list[AuditEntry]:
        return (await self.audit.page()).items


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


@pytest.fixture
async def vault(store: Store, home: Path) -> Vault:
    return Vault(store, home)


def a_job_with(*secrets: str) -> Job:
    return replace(a_job("0job"), settings=JobSettings(secrets=secrets), worker="box")


async def test_a_declared_secret_is_read_and_the_read_is_recorded(vault: Vault) -> None:
    assert await vault.secrets.set("db", VALUE, "anna")
    assert await vault.secrets.read("db", a_job_with("db"), 7.0) == VALUE
    (entry,) = await vault.entries()
    assert (entry.action, entry.subject, entry.actor, entry.outcome) == ("read_secret", "db", "box", "done")
    assert entry.details["job"] == "0job"
    (listed,) = await vault.secrets.list()
    assert (listed.name, listed.updated_by, listed.last_read_at) == ("db", "anna", 7.0)
    assert VALUE not in repr(listed)


async def test_what_is_not_declared_is_refused_and_that_is_recorded_too(vault: Vault) -> None:
    await vault.secrets.set("db", VALUE, "anna")
    with pytest.raises(Forbidden, match="does not declare the secret 'db'"):
        await vault.secrets.read("db", a_job_with("other"), 7.0)
    with pytest.raises(NotFound, match="there is no secret 'other'"):
        await vault.secrets.read("other", a_job_with("other"), 7.0)
    assert [entry.outcome for entry in await vault.entries()] == ["refused", "refused"]


async def test_a_secret_is_changed_and_deleted(vault: Vault) -> None:
    assert await vault.secrets.set("db", VALUE, "anna")
    assert not await vault.secrets.set("db", "another-value", "berta")
    assert await vault.secrets.read("db", a_job_with("db"), 7.0) == "another-value"
    assert vault.masker(f"{VALUE} another-value") == f"{MASK} {MASK}"
    await vault.secrets.delete("db")
    assert await vault.secrets.list() == []
    with pytest.raises(NotFound):
        await vault.secrets.delete("db")


def contents(directory: Path) -> list[bytes]:
    return [path.read_bytes() for path in directory.rglob("*") if path.is_file()]


async def test_no_file_of_the_home_holds_the_value(
    vault: Vault, store: Store, home: Path, tmp_path: Path
) -> None:
    await vault.secrets.set("db", VALUE, "anna")
    await store.close()
    forms = (VALUE.encode(), base64.b64encode(VALUE.encode())[:16], VALUE.encode().hex().encode())
    assert [content for content in contents(tmp_path) if any(form in content for form in forms)] == []
    assert stat.S_IMODE((home / "secret-key").stat().st_mode) == 0o600


async def test_a_value_moved_under_another_name_does_not_open(vault: Vault, store: Store) -> None:
    await vault.secrets.set("db", VALUE, "anna")
    sealed, key = (await store.secrets.sealed())["db"]
    await store.secrets.set("mine", sealed, key, 1.0, "mallory")
    with pytest.raises(Conflict, match="was tampered with"):
        await vault.secrets.read("mine", a_job_with("mine"), 7.0)
    changed = base64.b64decode(sealed)
    changed = changed[:-1] + bytes([changed[-1] ^ 1])
    await store.secrets.set("db", base64.b64encode(changed).decode(), key, 1.0, "mallory")
    with pytest.raises(Conflict, match="was tampered with"):
        await vault.secrets.read("db", a_job_with("db"), 7.0)


async def test_equal_values_are_sealed_differently(vault: Vault, store: Store) -> None:
    await vault.secrets.set("a", VALUE, "anna")
    await vault.secrets.set("b", VALUE, "anna")
    sealed = await store.secrets.sealed()
    assert sealed["a"][0] != sealed["b"][0]


async def test_the_key_outlives_a_restart_and_another_key_says_so(
    vault: Vault, store: Store, home: Path, tmp_path: Path
) -> None:
    await vault.secrets.set("db", VALUE, "anna")
    again = Vault(store, home)
    assert await again.secrets.load() == []
    assert again.masker(VALUE) == MASK
    given = base64.b64encode(bytes(32)).decode()
    other = Vault(store, home, {"FARHAND_SEALING_KEY": given})
    assert await other.secrets.load() == ["db"]
    with pytest.raises(Conflict, match="sealed with another key"):
        await other.secrets.read("db", a_job_with("db"), 7.0)
    file = tmp_path / "key"
    file.write_text((home / "secret-key").read_text())
    from_file = Vault(store, tmp_path / "other", {"FARHAND_SEALING_KEY_FILE": str(file)})
    assert await from_file.secrets.load() == []


@pytest.mark.parametrize("key", ["short", "é" * 44, base64.b64encode(bytes(16)).decode()])
async def test_a_key_that_is_none_stops_the_start(store: Store, home: Path, key: str) -> None:
    with pytest.raises(Usage, match="not 32 bytes in base64"):
        Vault(store, home, {"FARHAND_SEALING_KEY": key})


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("Db", "x", "cannot be the name of a secret"),
        ("", "x", "cannot be the name of a secret"),
        ("../x", "x", "cannot be the name of a secret"),
        ("db", "", "is not empty"),
        ("db", "x" * (VALUE_BYTES_MAX + 1), "at most 65536 bytes"),
        ("db", "\ud800", "is text"),
    ],
)
async def test_what_cannot_be_kept_is_refused_without_its_value(
    vault: Vault, name: str, value: str, words: str
) -> None:
    with pytest.raises(Usage, match=words) as refused:
        await vault.secrets.set(name, value, "anna")
    assert "xxx" not in str(refused.value)


async def test_the_audit_log_holds_no_secret_and_goes_on_by_cursor(vault: Vault) -> None:
    await vault.secrets.set("db", VALUE, "anna")
    who = Identity("operator", "anna", jti="7")
    for number in range(5):
        details = {"params": {"password": VALUE, "n": number}}
        await vault.audit.add(who, "10.0.0.1", "start_run", f"flow-{VALUE}", 202, details)
    first = await vault.audit.page(3)
    assert [entry.details["params"]["n"] for entry in first.items] == [4, 3, 2]
    rest = await vault.audit.page(3, first.next)
    assert [entry.details["params"]["n"] for entry in rest.items] == [1, 0]
    assert rest.next is None
    assert VALUE not in repr(first) + repr(rest)
    assert first.items[0].subject == f"flow-{MASK}"
    with pytest.raises(Usage, match="cursor"):
        await vault.audit.page(3, "x")


def test_a_status_says_what_came_of_it() -> None:
    assert [outcome_of(status) for status in (200, 202, 403, 422, 500, 503)] == [
        *("done", "done", "refused", "refused", "failed", "failed")
    ]


# ---------------------------------------------------------------- masking


def test_json_stays_json_when_a_secret_is_masked() -> None:
    masker = Masker()
    masker.add("1234")
    masker.add('with "quotes" and \n lines')
    value = {"pin": 1234, "other": 12345, "text": 'so: with "quotes" and \n lines', "flag": True}
    masked = json.loads(masker.json(json.dumps(value)))
    assert masked == {"pin": MASK, "other": 12345, "text": f"so: {MASK}", "flag": True}
    assert masker.json('{"a": 1}') == '{"a": 1}'
    assert masker.json("not json 1234") == f"not json {MASK}"


# ---------------------------------------------------------------- variables


@pytest.mark.parametrize("value", [None, True, 3, 2.5, "text", "é\n", [1, {"a": None}], {"k": []}])
async def test_a_variable_is_any_json_value(store: Store, value: Any) -> None:
    variables = Variables(store)
    assert await variables.set("limit", value, "anna")
    assert not await variables.set("limit", value, "berta")
    found = await variables.get("limit")
    assert (json.loads(found.value), found.updated_by) == (value, "berta")
    assert await variables.list() == [found]
    await variables.delete("limit")
    for ask in (variables.get, variables.delete):
        with pytest.raises(NotFound, match="there is no variable 'limit'"):
            await ask("limit")


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("A", 1, "name of a variable"),
        ("a", float("nan"), "not JSON"),
        ("a", "\ud800", "not JSON"),
        ("a", "x" * 70_000, "at most"),
    ],
)
async def test_what_is_no_variable_is_refused(store: Store, name: str, value: Any, words: str) -> None:
    with pytest.raises(Usage, match=words):
        await Variables(store).set(name, value, "anna")
