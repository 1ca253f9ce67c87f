from __future__ import annotations

import pytest

from tests import optional
from tests.optional import Component, absent, need


@pytest.fixture
def components(monkeypatch: pytest.MonkeyPatch) -> None:
    found = Component("Shell", ("no-such-shell", "sh"), "everything")
    lost = Component("Oracle", ("no-such-oracle",), "the future")
    promised = Component("Bread", ("no-such-bread",), "breakfast", installed_in_ci=True)
    monkeypatch.setattr(optional, "COMPONENTS", {c.name: c for c in (found, lost, promised)})
    monkeypatch.delenv("FARHAND_CI", raising=False)


@pytest.mark.usefixtures("components")
def test_a_component_is_found_by_any_of_its_names() -> None:
    assert need("Shell").name == "sh"


@pytest.mark.usefixtures("components")
def test_an_absent_component_skips_and_says_what() -> None:
    with pytest.raises(pytest.skip.Exception, match="Oracle is absent: the future"):
        need("Oracle")


@pytest.mark.usefixtures("components")
def test_ci_fails_on_what_it_installs_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FARHAND_CI", "1")
    with pytest.raises(pytest.fail.Exception, match="Bread"):
        need("Bread")
    with pytest.raises(pytest.skip.Exception):
        need("Oracle")


@pytest.mark.usefixtures("components")
def test_each_absent_component_has_its_line() -> None:
    assert absent() == ["Oracle is absent; skipped: the future", "Bread is absent; skipped: breakfast"]
