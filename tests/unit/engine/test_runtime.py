"""The runtime zip: the same code gives the same bytes, and nothing else is in it."""

from __future__ import annotations

import io
import zipfile

from farhand.engine import runtime


def test_the_same_code_gives_the_same_bytes() -> None:
    assert runtime.build() == runtime.build()


def test_it_holds_the_sdk_and_the_protocol_and_nothing_of_the_server() -> None:
    names = zipfile.ZipFile(io.BytesIO(runtime.build())).namelist()
    assert names == sorted(names)
    assert {
        "farhand/__init__.py",
        "farhand/errors.py",
        "farhand/retrying.py",
        "farhand_worker/__init__.py",
        "farhand_worker/distributions.py",
        "farhand_worker/manifest.py",
        "farhand_worker/masking.py",
        "farhand_worker/protocol.py",
    } <= set(names)
    others = {name for name in names if not name.startswith("farhand/sdk/")}
    assert len(others) == 8
    assert all(name.endswith(".py") for name in names)


def test_no_entry_carries_a_date_or_a_mode_of_this_machine() -> None:
    for entry in zipfile.ZipFile(io.BytesIO(runtime.build())).infolist():
        assert entry.date_time == (1980, 1, 1, 0, 0, 0)
        assert entry.external_attr in (0, 0o600 << 16)
