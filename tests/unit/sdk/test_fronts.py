"""Large bytes of a call's arguments come first in their file, and are hashed once for key and name."""

from __future__ import annotations

import hashlib
import pickle
from pathlib import Path
from typing import Any

import pytest

from farhand.sdk import blobfiles, hashing
from farhand.sdk.checkpoints import Ledger
from farhand.sdk.encoding import CannotDecode, decode, encode
from farhand.sdk.fronts import front_of

LARGE = bytes(range(256)) * 1024
LARGER = LARGE + b"more"


def hashed(*inputs: Any) -> dict[int, Any]:
    found: dict[int, Any] = {}
    Ledger().key_of("", "a", inputs, found)
    return found


def given(directory: Path, *args: Any, **kwargs: Any) -> dict[str, Any]:
    front = front_of(args, kwargs, hashed(*args, *kwargs.values()))
    body, digests = encode([list(args), kwargs], directory, False, "", front)
    assert digests == [body["digest"]]
    return body


def path_in(directory: Path) -> Any:
    return lambda digest: directory / digest.removeprefix("sha256:")


class Buffered:
    """What pickles as a buffer, as arrays do."""

    def __init__(self, content: Any) -> None:
        self.content = bytes(content)

    def __reduce_ex__(self, protocol: Any) -> Any:
        return Buffered, (pickle.PickleBuffer(self.content) if protocol >= 5 else self.content,)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Buffered) and other.content == self.content

    __hash__ = None  # type: ignore[assignment]


@pytest.mark.parametrize(
    ("args", "kwargs", "first"),
    [
        ((LARGE,), {}, LARGE),
        ((1, LARGE, "text"), {"more": [LARGE]}, LARGE),
        ((LARGE, LARGER), {}, LARGER),
        ((LARGE, LARGE), {}, LARGE),
        ((2,), {"content": LARGE, "other": Buffered(LARGER)}, LARGE),
        ((Buffered(LARGER), LARGE), {}, LARGE),
    ],
    ids=["alone", "among", "largest", "twice", "named", "buffers"],
)
def test_large_bytes_come_first_and_all_arguments_come_back(
    tmp_path: Path, args: tuple[Any, ...], kwargs: dict[str, Any], first: bytes
) -> None:
    body = given(tmp_path, *args, **kwargs)
    content = path_in(tmp_path)(body["digest"]).read_bytes()
    assert content.startswith(first)
    assert body["front"] == len(first)
    assert (len(content), "sha256:" + hashlib.sha256(content).hexdigest()) == (body["size"], body["digest"])
    back = decode(body, path_in(tmp_path))
    assert back == [list(args), kwargs]
    assert [type(value) for value in back[0]] == [type(value) for value in args]


@pytest.mark.parametrize("args", [(b"small",), (bytearray(LARGE),), ("x" * 100_000,), ([LARGE],), ()])
def test_anything_else_has_no_front(tmp_path: Path, args: tuple[Any, ...]) -> None:
    front = front_of(args, {}, hashed(*args))
    assert front is None
    assert decode(encode([list(args), {}], tmp_path, False)[0], path_in(tmp_path)) == [list(args), {}]


def test_the_key_is_the_same_as_without_and_what_a_call_returned_is_not_hashed() -> None:
    assert Ledger().key_of("", "a", [LARGE], {}) == Ledger().key_of("", "a", [LARGE])
    ledger, found = Ledger(), dict[int, Any]()
    ledger.produced(LARGE, "key", len(LARGE))
    ledger.key_of("", "a", [LARGE], found)
    assert found == {}


def test_each_byte_is_hashed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    counted = 0

    class Counting:
        def __init__(self, inner: Any = None) -> None:
            self._inner = inner or hashlib.sha256()

        def update(self, content: bytes) -> None:
            nonlocal counted
            counted += len(content)
            self._inner.update(content)

        def copy(self) -> Counting:
            return Counting(self._inner.copy())

        def __getattr__(self, name: str) -> Any:
            return getattr(self._inner, name)

    for module in (blobfiles, hashing):
        monkeypatch.setattr(module, "new_sha256", Counting)
    body = given(tmp_path, LARGE)
    assert counted == body["size"]
    assert decode(body, path_in(tmp_path)) == [[LARGE], {}]


def test_a_file_of_an_earlier_version_is_read_and_one_without_its_front_is_refused(tmp_path: Path) -> None:
    old, _ = encode([[LARGE], {}], tmp_path, False)
    assert "front" not in old
    assert decode(old, path_in(tmp_path)) == [[LARGE], {}]
    body = given(tmp_path, LARGE)
    path_in(tmp_path)(body["digest"]).write_bytes(LARGE)
    with pytest.raises(CannotDecode):
        decode(body, path_in(tmp_path))
