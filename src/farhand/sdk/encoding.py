"""How values and exceptions leave a process.

A *Value* is ``{"enc": "json" | "pickle", "text": …}``; when its text is over INLINE_BYTES_MAX it is
``{"enc": …, "digest": …, "size": …}`` and the blob holds the JSON text (UTF-8) or the raw pickle. With
``"front": n`` its first n bytes are a bytes object of the value, the one that the pickle behind lacks.

JSON is used when nothing is lost by it: every type is exact (a tuple, a set, a dict with other than
text keys or a subclass goes through pickle). What JSON lacks is tagged: ``{"$float": "nan"}``,
``{"$artifact": {…}}``, and ``{"$dict": {…}}`` around a dict whose own keys begin with ``$``. The text is
ASCII, so lone surrogates survive as escapes. Key order is kept, since a dict has one.

A pickle is protocol 5, and only an engine or a script ever opens it.

An *Error* is ``{"type", "module", "message", "traceback", "pickle"?}``.
"""

from __future__ import annotations

import base64
import importlib
import pickle
import traceback
from json.encoder import encode_basestring_ascii as quoted
from pathlib import Path
from typing import Any, Callable, Dict, List, Optional, Sequence, Set, Tuple, Union

from farhand import errors
from farhand.errors import NotSerializable, TaskFailed
from farhand_worker import compact

from .blobfiles import Piece, write_blob
from .fronts import Front, set_apart
from .interrupts import UNRULY
from .limits import INLINE_BYTES_MAX
from .references import ArtifactRef

Body = Dict[str, Any]
Fetch = Callable[[str], Path]

_ATOMS = frozenset({type(None), bool, int, float, str})
_FLOATS = {"nan": float("nan"), "inf": float("inf"), "-inf": float("-inf")}
_PLAIN, _TAGGED, _FOREIGN = 0, 1, 2
_MESSAGE_CHARS_MAX = 8 * 1024
_TRACEBACK_CHARS_MAX = 32 * 1024
_NOT_THE_USERS = (str(Path(__file__).parent), importlib.__file__, "<frozen importlib")


_compact = compact.encoder(allow_nan=False)

_SHORT: Dict[type, Callable[[Any], str]] = {
    type(None): lambda value: "null",
    bool: lambda value: "true" if value else "false",
    int: int.__repr__,
    str: quoted,
}
"""What needs no encoder: most calls return no more than that."""


class CannotDecode(Exception):
    """A value that cannot be loaded in this process."""


# ---------------------------------------------------------------- values


def encode(
    value: Any,
    blobs: Union[Path, str, None],
    synced: bool = True,
    what: str = "",
    front: Optional[Front] = None,
) -> Tuple[Body, List[str]]:
    """The Value of ``value`` and the digests of the blobs it needs, written to ``blobs`` (``synced`` there).

    ``front`` are bytes among the arguments that ``value`` then is, to come first in their blob. Raises
    `NotSerializable`, naming the type and ``what`` it is, when neither JSON nor pickle can carry it.
    """
    text = json_text(value)
    if text is not None:
        if len(text) <= INLINE_BYTES_MAX or blobs is None:
            return {"enc": "json", "text": text}, []
        return _as_blob("json", [text.encode("ascii")], blobs, synced)
    if front is not None and blobs is not None:
        body, digests = _as_blob("pickle", _pickled(value, what, front), blobs, synced, front)
        return {**body, "front": len(front.content)}, digests
    pieces = _pickled(value, what)
    if sum(map(len, pieces)) * 4 // 3 + 4 <= INLINE_BYTES_MAX or blobs is None:
        return {"enc": "pickle", "text": base64.b64encode(b"".join(pieces)).decode("ascii")}, []
    return _as_blob("pickle", pieces, blobs, synced)


def decode(body: Body, fetch: Optional[Fetch]) -> Any:
    """The value of a Value; ``fetch`` finds the file of a digest. Raises `CannotDecode`."""
    try:
        if "digest" in body:
            if fetch is None:
                raise CannotDecode("its content is not here")
            return _READ[body["enc"]](fetch(body["digest"]), body.get("front", 0))
        if body["enc"] == "json":
            return from_json_text(body["text"])
        return pickle.loads(base64.b64decode(body["text"]))
    except CannotDecode:
        raise
    except Exception as error:
        raise CannotDecode(f"{type(error).__name__}: {error}") from error


def size_of(body: Body) -> int:
    """The bytes an encoded value takes."""
    return int(body["size"]) if "size" in body else len(body["text"])


def json_text(value: Any) -> Optional[str]:
    """Compact JSON text of ``value``, or None when JSON would lose something of it."""
    try:
        short = _SHORT.get(type(value))
        if short is not None:
            return _checked(short(value), value)
        nature = _nature(value)
        if nature == _FOREIGN:
            return None
        if nature == _TAGGED:
            return _checked(_compact(_tag(value)), value)
        try:
            return _checked(_compact(value), value)
        except ValueError:
            return _checked(_compact(_tag(value)), value)
    except (ValueError, RecursionError):
        return None  # an integer beyond the limit for text, a cycle, or nested too deep


def from_json_text(text: str) -> Any:
    """The value of a text that `json_text` made (or of any JSON text)."""
    return _untag(compact.parsed(text)) if '"$' in text else compact.parsed(text)


def _as_blob(
    enc: str, pieces: Sequence[Piece], blobs: Union[Path, str], synced: bool, front: Optional[Front] = None
) -> Tuple[Body, List[str]]:
    digest, size = write_blob(Path(blobs), pieces, synced, front)
    return {"enc": enc, "digest": digest, "size": size}, [digest]


def _read_json(path: Path, _front: int) -> Any:
    return from_json_text(path.read_bytes().decode("ascii"))


def _read_pickle(path: Path, front: int) -> Any:
    """Large bytes are read to where they stay: a file knows how, and a pickle of bytes does not."""
    with path.open("rb") as file:
        return pickle.load(file, buffers=[file.read(front)] if front else None)


_READ: Dict[str, Callable[[Path, int], Any]] = {"json": _read_json, "pickle": _read_pickle}


class _Pieces:
    """What a pickler writes, as it comes: large bytes are those of the value itself, not a copy.

    Those of an array come as the buffer that its type gives.
    """

    __slots__ = ("pieces",)

    def __init__(self) -> None:
        self.pieces: List[Piece] = []

    def write(self, piece: Union[Piece, pickle.PickleBuffer]) -> int:
        kept = piece.raw() if isinstance(piece, pickle.PickleBuffer) else piece
        self.pieces.append(kept)
        return len(kept)


def _pickled(value: Any, what: str, front: Optional[Front] = None) -> List[Piece]:
    written = _Pieces()
    try:
        if front is None:
            pickle.Pickler(written, protocol=5).dump(value)
        else:
            given, apart = set_apart(value, front.content)
            pickle.Pickler(written, protocol=5, buffer_callback=lambda other: other is not apart).dump(given)
        return written.pieces
    except UNRULY as error:
        kind = f"{type(value).__module__}.{type(value).__qualname__}"
        whose = f"{what}: " if what else ""
        message = f"{whose}a value of type {kind} cannot be stored: {text_of(error)}"
        raise NotSerializable(message, type=kind) from error


def _nature(value: Any) -> int:
    """Whether JSON carries ``value`` as it is, with tags, or not at all."""
    kind = type(value)
    if kind in _ATOMS:
        return _PLAIN
    if kind is ArtifactRef:
        return _TAGGED
    tagged = _PLAIN
    if kind is dict:
        if not set(map(type, value)) <= {str}:
            return _FOREIGN
        if any(key.startswith("$") for key in value):
            tagged = _TAGGED
        items = value.values()
    elif kind is list:
        items = value
    else:
        return _FOREIGN
    if set(map(type, items)) <= _ATOMS:
        return tagged
    return max(tagged, max(map(_nature, items)))


def _tag(value: Any) -> Any:
    kind = type(value)
    if kind is float:
        if value != value:
            return {"$float": "nan"}
        return value if abs(value) != _FLOATS["inf"] else {"$float": str(value)}
    if kind is list:
        return [_tag(item) for item in value]
    if kind is dict:
        plain = {key: _tag(item) for key, item in value.items()}
        return {"$dict": plain} if any(key.startswith("$") for key in value) else plain
    if kind is ArtifactRef:
        return {"$artifact": value.as_dict()}
    return value


def _untag(value: Any) -> Any:
    """Undo `_tag`, from the outside in, so that what ``$dict`` wraps is not taken for a tag."""
    if type(value) is list:
        return [_untag(item) for item in value]
    if type(value) is not dict:
        return value
    if len(value) == 1:
        ((name, content),) = value.items()
        if name == "$float" and content in _FLOATS:
            return _FLOATS[content]
        if name == "$artifact" and type(content) is dict:
            return ArtifactRef(**content)
        if name == "$dict" and type(content) is dict:
            value = content
    return {key: _untag(item) for key, item in value.items()}


def _checked(text: str, value: Any) -> Optional[str]:
    """``text``, unless a pair of lone surrogates in ``value`` would come back as one character."""
    if "\\ud" in text and _has_surrogate_pair(value):
        return None
    return text


def _has_surrogate_pair(value: Any) -> bool:
    if isinstance(value, str):
        return any("\ud800" <= a <= "\udbff" and "\udc00" <= b <= "\udfff" for a, b in zip(value, value[1:]))  # noqa: B905, RUF007 - not in Python 3.9
    if isinstance(value, list):
        return any(map(_has_surrogate_pair, value))
    if isinstance(value, dict):
        return any(map(_has_surrogate_pair, value)) or any(map(_has_surrogate_pair, value.values()))
    return False


# ---------------------------------------------------------------- exceptions


class Elsewhere(Exception):
    """The traceback of an exception that was raised in another process; the cause of what is raised here."""

    def __str__(self) -> str:
        return f"\n{self.args[0].rstrip()}"


def encode_error(error: BaseException) -> Body:
    """The Error of an exception. Never raises: what cannot be pickled travels as text alone."""
    kind = type(error)
    body: Body = {
        "type": kind.__qualname__,
        "module": kind.__module__,
        "message": _clipped(text_of(error), _MESSAGE_CHARS_MAX),
        "traceback": _clipped(traceback_of(error), _TRACEBACK_CHARS_MAX),
    }
    try:
        content = pickle.dumps(error, protocol=5)
    except UNRULY:  # an exception may hold anything, and its text is enough
        return body
    if len(content) <= INLINE_BYTES_MAX // 2:
        body["pickle"] = base64.b64encode(content).decode("ascii")
    return body


def decode_error(body: Body) -> BaseException:
    """The exception of an Error: its own type where that loads here, else `TaskFailed` with the text.

    Its cause is where it was raised, as text, since a traceback cannot be pickled.
    """
    error = _decoded_error(body)
    if body.get("traceback"):
        error.__cause__ = Elsewhere(body["traceback"])
    return error


def _decoded_error(body: Body) -> BaseException:
    content = body.get("pickle")
    if content:
        try:
            error = pickle.loads(base64.b64decode(content))
        except UNRULY:  # unpickling runs code of any module, which may end in any way
            error = None
        if isinstance(error, BaseException):
            return error
    kind = body.get("type", "Exception")
    ours = getattr(errors, kind, None) if body.get("module") == errors.__name__ else None
    if not content and isinstance(ours, type) and issubclass(ours, errors.FarhandError):
        return ours(str(body.get("message", "")))  # the server's own word, which it does not pickle
    return TaskFailed(f"{kind}: {body.get('message', '')}", traceback=body.get("traceback", ""))


def text_of(error: BaseException) -> str:
    """``str(error)``, whatever its ``__str__`` does."""
    try:
        return str(error)
    except UNRULY as broken:  # a broken __str__ must not hide the failure it describes
        return f"<its text cannot be made: {type(broken).__name__}>"


def summary_of(error: BaseException) -> str:
    """Type and message in one line."""
    text = _clipped(text_of(error), _MESSAGE_CHARS_MAX)
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def traceback_of(error: BaseException) -> str:
    """Its traceback by the frames of the user's code alone, causes included."""
    try:
        told = traceback.TracebackException.from_exception(error)
        _leave_ours_out(told, set())
        return "".join(told.format())
    except UNRULY:  # formatting calls the exception's own code, or memory is short
        return type(error).__name__


def _leave_ours_out(told: traceback.TracebackException, seen: Set[int]) -> None:
    """Drop the frames between one function of the user's and the next, here and in what it came from."""
    if id(told) in seen:
        return
    seen.add(id(told))
    told.stack = traceback.StackSummary.from_list(
        [frame for frame in told.stack if not frame.filename.startswith(_NOT_THE_USERS)]
    )
    for other in (told.__cause__, told.__context__, *(getattr(told, "exceptions", None) or ())):
        if other is not None:
            _leave_ours_out(other, seen)


def _clipped(text: str, limit: int) -> str:
    if len(text) <= limit:
        return text
    return f"{text[: limit // 2]}\n… {len(text) - limit} characters left out …\n{text[-limit // 2 :]}"
