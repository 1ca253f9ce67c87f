"""The keys of calls, and the outcomes that earlier attempts of this run have kept.

A key is made of (scope, task, input hash, n-th such call). The scope is the flow body or the calling
task, so neither order nor threads matter to it. A future, or a value that is the result of a call,
hashes as that call's key: equal in the rerun, where the value comes out of the record, and cheap.

So the ledger knows the objects that calls have returned. It keeps them alive, since an object's id is
its own only that long: weakly where the type allows it, else up to ``_HELD_BYTES_MAX`` in all, the
oldest dropped first (they hash by content from then on). Small values always hash by content. A call
that returns an object which another call has returned already is recorded as ``{"of": key}`` in its
Value, so that the rerun, where both are loaded, gives out one object again.
"""

from __future__ import annotations

import threading
import weakref
from collections import OrderedDict
from enum import Enum
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any, Dict, Iterable, List, Optional, Tuple

from . import hashing
from .fronts import Hashed
from .futures import Future
from .ids import new_id

_HELD_BYTES_MAX = 128 * 1024 * 1024
_SMALL = 256
_BY_CONTENT = (
    type(None),
    bool,
    int,
    float,
    complex,
    type,
    FunctionType,
    BuiltinFunctionType,
    ModuleType,
    Enum,
)
_ALIAS = "of"


class Ledger:
    """The calls of one run in this process.

    ``remember``: results are held as they are, for a retry in this very process. ``in_order``: the run was
    retried with other code or parameters, so outcomes that it took over are good only up to the first call
    that has none of them; whatever is submitted later runs. Those of its own earlier attempts always are.
    """

    def __init__(self, remember: bool = False, in_order: bool = False) -> None:
        self._remembered: Optional[Dict[str, Any]] = {} if remember else None
        self._kept: Dict[str, Dict[str, Any]] = {}
        self._in_order = in_order
        self._diverged = False
        self._counts: Dict[Tuple[str, str, str], int] = {}
        self._lock = threading.Lock()
        self._by_id: Dict[int, Tuple[Any, str]] = {}
        self._by_key: Dict[str, int] = {}
        self._held: OrderedDict[int, int] = OrderedDict()
        self._held_bytes = 0

    # ------------------------------------------------------------ keys

    def key_of(
        self, scope: str, step: str, inputs: Iterable[Any], hashed: Optional[Hashed] = None
    ) -> Tuple[str, Optional[str]]:
        """The key of the next such call, and why its outcome cannot be kept (None: it can).

        ``hashed`` takes the hash of large bytes among the inputs.
        """
        try:
            canonical, identify = hashing.canonical, self.identify
            inputs_hash = hashing.digest_of([canonical(value, identify, hashed) for value in inputs])
        except hashing.Unhashable as error:
            return new_id(), str(error)
        same = (scope, step, inputs_hash)
        with self._lock:
            n = self._counts.get(same, 0)
            self._counts[same] = n + 1
        parts = f"{scope}\0{step}\0{inputs_hash}\0{n}"
        return hashing.digest_of([parts.encode("utf-8", "surrogatepass")]), None

    def restart(self) -> None:
        """The flow's body begins again in this process: the same calls get the same keys."""
        with self._lock:
            self._counts.clear()

    def identify(self, value: Any) -> Optional[str]:
        """The key of the call whose result ``value`` is (or will be), or None."""
        if type(value) is Future:
            return value.key
        entry = self._by_id.get(id(value))
        if entry is None:
            return None
        held, key = entry
        return key if (held() if type(held) is weakref.ref else held) is value else None

    # ------------------------------------------------------------ results

    def remembered(self, key: str) -> Optional[Tuple[Any]]:
        """The result of an earlier try in this process, in a tuple."""
        if self._remembered is None or key not in self._remembered:
            return None
        return (self._remembered[key],)

    def remember(self, key: str, value: Any) -> None:
        """Hold a result for a retry in this process, if there may be one."""
        if self._remembered is not None:
            self._remembered[key] = value

    def produced(self, value: Any, key: str, size: int) -> Optional[str]:
        """Note that the call ``key`` returned ``value``; the key of an earlier one that did, or None."""
        if isinstance(value, _BY_CONTENT):
            return None
        if isinstance(value, (str, bytes)) and len(value) < _SMALL:
            return None
        if isinstance(value, (tuple, frozenset)) and not value:
            return None
        earlier = self.identify(value)
        if earlier is not None:
            return earlier if earlier != key else None
        with self._lock:
            self._remember(value, key, size)
        return None

    def _remember(self, value: Any, key: str, size: int) -> None:
        identity = id(value)
        try:
            entry: Any = weakref.ref(value, lambda _: self._by_id.pop(identity, None))
        except TypeError:
            entry = value
            self._held[identity] = size
            self._held_bytes += size
        self._by_id[identity] = (entry, key)
        self._by_key[key] = identity
        while self._held_bytes > _HELD_BYTES_MAX and self._held:
            oldest, freed = self._held.popitem(last=False)
            self._held_bytes -= freed
            self._by_id.pop(oldest, None)

    def returned_by(self, key: str) -> Any:
        """The living object that the call ``key`` returned, or None."""
        entry = self._by_id.get(self._by_key.get(key, 0))
        if entry is None or entry[1] != key:
            return None
        return entry[0]() if type(entry[0]) is weakref.ref else entry[0]

    def restored(self, value: Any, key: str, body: Dict[str, Any], size: int) -> Any:
        """The object to give out for a kept outcome whose decoded value is ``value``."""
        owner = body.get(_ALIAS, key)
        living = self.returned_by(owner)
        if living is not None:
            return living
        self.produced(value, owner, size)
        return value

    @staticmethod
    def alias(body: Dict[str, Any], owner: Optional[str]) -> Dict[str, Any]:
        """A Value marked as the very object that the call ``owner`` returned."""
        return body if owner is None else {**body, _ALIAS: owner}

    # ------------------------------------------------------------ kept outcomes

    def keep(self, outcomes: List[Dict[str, Any]]) -> None:
        """Take in outcomes of earlier attempts (bodies of checkpoints)."""
        for outcome in outcomes:
            if outcome.get("kept", True):
                self._kept[outcome["key"]] = outcome

    def kept(self, key: str) -> Optional[Dict[str, Any]]:
        """The outcome to replay for ``key``, a failure too: a flow retry is not given those any more."""
        outcome = self._kept.get(key)
        if self._in_order:
            taken_over = outcome is not None and outcome.get("seeded", False)
            self._diverged |= not taken_over
            if taken_over and self._diverged:
                return None
        return None if outcome is None or outcome["state"] == "cancelled" else outcome

    def forget(self, key: str) -> None:
        """The kept outcome cannot be loaded here; the call runs again."""
        self._kept.pop(key, None)
