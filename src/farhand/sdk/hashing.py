"""The canonical hash of a call's inputs.

Equal values of equal types hash equally, also after a pickle round trip and under any PYTHONHASHSEED:
dicts and sets are sorted by the canonical form of their members, shared references do not show (there
is no memo in the result), and objects are taken apart by ``__reduce_ex__``, as pickle does. A cycle is
written as the distance to the object it leads back to.

What cannot be taken apart (a lock, a generator, a lambda) raises `Unhashable`.
"""

from __future__ import annotations

import copyreg
from collections import OrderedDict
from enum import Enum
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any, Callable, Dict, List, Optional, Tuple, Union

try:
    from _blake2 import blake2b
except ImportError:  # an interpreter that has it elsewhere; hashlib loads OpenSSL, which takes 4 ms
    from hashlib import blake2b

from .blobfiles import new_sha256
from .fronts import Hashed
from .interrupts import UNRULY

Identify = Callable[[Any], Optional[str]]
"""Tells the key of the call whose result a value is, or None."""

_DIGEST_BYTES = 16
_INLINE_BYTES = 64
_LARGE_BYTES = 64 * 1024
"""From here on it is SHA-256: processors have instructions for that, and the value's file needs it too."""

_NO_CYCLE = 1 << 30


class Unhashable(TypeError):
    """The value has no canonical form."""


def _text(value: str) -> bytes:
    content = value.encode("utf-8", "surrogatepass")
    return b"s%d:%b" % (len(content), content) if len(content) <= _INLINE_BYTES else b"S" + _digest(content)


def _octets(value: bytes) -> bytes:
    return b"b%d:%b" % (len(value), value) if len(value) <= _INLINE_BYTES else b"B" + _digest(value)


def _digest(content: Union[bytes, bytearray]) -> bytes:
    if len(content) >= _LARGE_BYTES:
        return bytes(_sha256_of(content).digest()[:_DIGEST_BYTES])
    return blake2b(content, digest_size=_DIGEST_BYTES).digest()


def _sha256_of(content: Union[bytes, bytearray]) -> Any:
    found = new_sha256()
    found.update(content)
    return found


_SCALARS: Dict[type, Callable[[Any], bytes]] = {
    type(None): lambda value: b"N",
    bool: lambda value: b"T" if value else b"F",
    int: lambda value: b"i%x;" % value,
    float: lambda value: b"f%b;" % repr(value).encode("ascii"),
    complex: lambda value: b"c%b;" % repr(value).encode("ascii"),
    str: _text,
    bytes: _octets,
    bytearray: lambda value: b"y" + _digest(value),
}
_ALWAYS_BY_CONTENT = frozenset({type(None), bool, int, float, complex})


def canonical(value: Any, identify: Identify, hashed: Optional[Hashed] = None) -> bytes:
    """The canonical form of ``value``, self-delimiting and short. Raises `Unhashable`.

    ``hashed`` takes the hash of large bytes: who is to name a file that begins with them goes on from there.
    """
    kind = type(value)
    scalar = _SCALARS.get(kind)
    if scalar is not None and (kind in _ALWAYS_BY_CONTENT or len(value) <= _INLINE_BYTES):
        return scalar(value)
    if hashed is not None and kind is bytes and len(value) >= _LARGE_BYTES and identify(value) is None:
        found = hashed[id(value)] = _sha256_of(value)
        return b"B" + bytes(found.digest()[:_DIGEST_BYTES])
    try:
        return _Walk(identify).form(value)
    except RecursionError:
        raise Unhashable("nested too deep") from None


def digest_of(parts: List[bytes]) -> str:
    """The hash of canonical forms in a row, as 32 hexadecimal digits."""
    return blake2b(b"".join(parts), digest_size=_DIGEST_BYTES).hexdigest()


class _Walk:
    """One walk through a value. ``_lowest`` is the outermost object that a cycle led back to."""

    __slots__ = ("_identify", "_lowest", "_memo", "_stack")

    def __init__(self, identify: Identify) -> None:
        self._identify = identify
        self._stack: Dict[int, int] = {}
        self._memo: Dict[int, Tuple[Any, bytes]] = {}
        self._lowest = _NO_CYCLE

    def form(self, value: Any) -> bytes:
        scalar = _SCALARS.get(type(value))
        if scalar is not None and type(value) in _ALWAYS_BY_CONTENT:
            return scalar(value)
        producer = self._identify(value)
        if producer is not None:
            return b"K%b;" % producer.encode("ascii")
        return self._composite(value) if scalar is None else scalar(value)

    def _composite(self, value: Any) -> bytes:
        identity = id(value)
        if identity in self._memo:
            return self._memo[identity][1]
        depth = len(self._stack)
        if identity in self._stack:
            self._lowest = min(self._lowest, self._stack[identity])
            return b"^%d;" % (depth - self._stack[identity])
        outer, self._lowest = self._lowest, _NO_CYCLE
        self._stack[identity] = depth
        tag, parts = self._parts(value)
        del self._stack[identity]
        form = tag + _digest(b"".join(parts))
        if self._lowest >= depth:  # no reference leads out of this object, so its form holds anywhere
            self._memo[identity] = (value, form)
            self._lowest = _NO_CYCLE
        self._lowest = min(self._lowest, outer)
        return form

    def _parts(self, value: Any) -> Tuple[bytes, List[bytes]]:
        kind = type(value)
        if kind is list:
            return b"l", [self.form(item) for item in value]
        if kind is tuple:
            return b"t", [self.form(item) for item in value]
        if kind is dict:
            return b"d", self._sorted_items(value.items())
        if isinstance(value, (set, frozenset)):
            name = b"" if kind in (set, frozenset) else self._global(kind)
            return b"e" if kind is not frozenset else b"z", [name, *sorted(self.form(item) for item in value)]
        if isinstance(value, (type, FunctionType, ModuleType)):
            return b"g", [self._global(value)]
        if isinstance(value, Enum):
            return b"m", [self._global(kind), _text(value.name or repr(value))]
        return b"o", self._reduced(value)

    def _sorted_items(self, items: Any) -> List[bytes]:
        return [form for pair in sorted((self.form(k), self.form(v)) for k, v in items) for form in pair]

    def _global(self, value: Any) -> bytes:
        if isinstance(value, ModuleType):
            return _text(value.__name__)
        name = f"{value.__module__}:{value.__qualname__}"
        if "<" in name:
            raise Unhashable(f"{name} has no name that another process knows")
        return _text(name)

    def _reduced(self, value: Any) -> List[bytes]:
        kind = type(value)
        reduce = copyreg.dispatch_table.get(kind)
        reduced: Any
        try:
            reduced = reduce(value) if reduce is not None else value.__reduce_ex__(4)
        except RecursionError:
            raise
        except UNRULY as error:  # an object may refuse in any way it likes
            raise Unhashable(f"a {kind.__qualname__} cannot be taken apart: {error}") from error
        if isinstance(reduced, str):
            module = getattr(value, "__module__", None) or kind.__module__
            return [_text(f"{module}:{reduced}")]
        maker, arguments, state, items, pairs = (*reduced, None, None, None)[:5]
        forms = [self._global(maker) if _is_global(maker) else self.form(maker), self.form(arguments)]
        forms.append(self.form(state))
        forms.extend(self.form(item) for item in items or ())
        if pairs is not None:
            forms.append(b"|")
            if isinstance(value, OrderedDict):
                forms.extend(form for k, v in pairs for form in (self.form(k), self.form(v)))
            else:
                forms.extend(self._sorted_items(pairs))
        return forms


def _is_global(maker: Any) -> bool:
    return isinstance(maker, (type, FunctionType)) or (
        isinstance(maker, BuiltinFunctionType)
        and not isinstance(getattr(maker, "__self__", None), type)
        and isinstance(getattr(maker, "__module__", None), str)
    )
