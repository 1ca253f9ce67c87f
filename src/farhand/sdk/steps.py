"""What flows and tasks have in common: a function, its name, its settings, its signature."""

from __future__ import annotations

import functools
import inspect
from types import CodeType, ModuleType
from typing import (
    TYPE_CHECKING,
    Any,
    Callable,
    Dict,
    Generic,
    Iterator,
    List,
    Optional,
    Sequence,
    Set,
    Tuple,
    TypeVar,
)

from farhand.errors import NotSupported, Usage

from .events import members
from .hooks import Hook, Hooks
from .metrics import drained
from .options import Options

if TYPE_CHECKING:
    from .deadlines import Words
    from .services import Service

F = TypeVar("F", bound=Callable[..., Any])

_PLAIN = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


def _body_of(function: Callable[..., Any], delivers: bool) -> Tuple[bool, Callable[..., Any]]:
    """Whether it is awaited, and what to call: a generator's yields are metrics and its return the value.

    An async generator, which returns none, has to be a node that ``delivers`` what it yields.
    """
    flags = getattr(getattr(function, "__code__", None), "co_flags", 0)
    if flags & inspect.CO_ASYNC_GENERATOR:
        if delivers:
            return True, function
        raise NotSupported("an async generator returns no value; write emit(…) where it has yield")
    if flags & inspect.CO_GENERATOR:
        return False, functools.partial(drained, function)
    return bool(flags & inspect.CO_COROUTINE), function


class Step(Generic[F]):
    """A decorated function. Outside of a run it is the function itself."""

    word = "step"
    passing = False
    """Whether what it gives is good for this attempt alone: another asks anew."""
    is_flow = False

    def __init__(
        self,
        function: F,
        name: Optional[str],
        options: Options,
        hooks: Optional[Hooks] = None,
        *,
        delivers: bool = False,
    ) -> None:
        if isinstance(function, type) or not callable(function):
            raise Usage(
                f"@{self.word} is for functions, and {getattr(function, '__name__', function)!r} is none"
            )
        functools.update_wrapper(self, function)  # pyright: ignore[reportArgumentType]
        self.function = function
        self.is_coroutine, self.body = _body_of(function, delivers)
        self.is_async = self.is_coroutine and not options.process
        """Whether its work is awaited on the loop that calls it; a process has a loop of its own."""
        self.waits = self.is_coroutine or options.process
        """Whether the thread that calls it is known to wait most of the time."""
        self.invoke = self.body
        self.name = name or function.__name__
        self.options = options
        self.hooks = hooks or Hooks()
        self.entry = f"{function.__module__}:{function.__qualname__}"
        self.identity = self.entry if name is None else f"{self.entry} {name}"
        self.limit_words: Optional[Words] = None
        self.nodes: Sequence[Step[Any]] = ()
        self.service: Optional[Service] = None
        """The service whose address it is, for a node of a declared flow that is one."""
        """The steps that it calls without naming them in its code: the nodes of a declared flow."""
        self._plan: Optional[List[Tuple[str, Any]]] = None
        self._signature: Optional[inspect.Signature] = None
        self._by_position = -1
        self._placed_text: Optional[str] = None

    def settings_of_call(self) -> Dict[str, Any]:
        """What queue and agent need to know of a placed call, and what they say where it names its limits."""
        options, words = self.options, self.limit_words
        if words is None:
            return options.settings()
        said = {
            "timeout_words": words.of_timeout(options.timeout_s),
            "silence_words": words.of_silence(options.silence_timeout_s),
        }
        return {**options.settings(), **said}

    @property
    def placed_text(self) -> str:
        """What every placed call of it says alike, as `events.members`; written once."""
        if self._placed_text is None:
            self._placed_text = self.placed_with({})
        return self._placed_text

    def placed_with(self, settings: Dict[str, Any]) -> str:
        """The same of a call that has settings of its own."""
        return members(
            {
                "name": self.name,
                "entry": self.entry,
                "ask": self.options.ask(),
                "settings": {**self.settings_of_call(), **settings},
                "tags": self.options.tags or None,
            }
        )

    def hooks_of(self, state: str) -> List[Hook]:
        """What is called when a run of it, or a call, ends in ``state``."""
        return self.hooks.of(state)

    @property
    def signature(self) -> inspect.Signature:
        """The function's signature, read once."""
        if self._signature is None:
            self._signature = inspect.signature(self.function)
        return self._signature

    def inputs(self, args: Tuple[Any, ...], kwargs: Dict[str, Any]) -> Tuple[Any, ...]:
        """The values of the parameters in the order of the signature, defaults included.

        However a call is spelled, its inputs are the same. Raises TypeError as the call would.
        """
        if not kwargs and len(args) == self._by_position:
            return args
        if self._by_position == -1:
            self._make_plan()
            return self.inputs(args, kwargs)
        if self._plan is not None and len(args) <= self._by_position:
            quick = self._quick(args, kwargs, self._plan)
            if quick is not None:
                return quick
        try:
            bound = self.signature.bind(*args, **kwargs)
        except TypeError as error:
            raise TypeError(f"{self.name}(): {error}") from None  # bind itself does not say of what
        bound.apply_defaults()
        return tuple(bound.arguments.values())

    def _quick(
        self, args: Tuple[Any, ...], kwargs: Dict[str, Any], plan: List[Tuple[str, Any]]
    ) -> Optional[Tuple[Any, ...]]:
        values = list(args)
        used = 0
        for name, default in plan[len(args) :]:
            if name in kwargs:
                values.append(kwargs[name])
                used += 1
            elif default is not inspect.Parameter.empty:
                values.append(default)
            else:
                return None
        return tuple(values) if used == len(kwargs) else None

    def _make_plan(self) -> None:
        parameters = list(self.signature.parameters.values())
        if all(parameter.kind in _PLAIN for parameter in parameters):
            self._plan = [(parameter.name, parameter.default) for parameter in parameters]
            positional = [p for p in parameters if p.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD]
            self._by_position = len(positional)
            if len(positional) != len(parameters):
                self._by_position = -2 if not positional else len(positional)
        else:
            self._by_position = -2

    def name_of_run(self, arguments: Dict[str, Any]) -> Optional[str]:
        """What a run of this step is called, where that is not its own name."""
        return None

    def called(self, args: Any, kwargs: Any) -> Dict[str, Any]:
        """What the record of a call says of a flow; only flows have any of it."""
        return {}

    def takes(self, name: str) -> bool:
        """Whether the function has a parameter of this name, as far as its code says."""
        code = getattr(self.function, "__code__", None)
        return code is not None and name in code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]

    def __reduce__(self) -> str:
        return self.function.__qualname__

    def __repr__(self) -> str:
        return f"<{self.word} {self.name}>"


def declared_by(step: Step[Any]) -> List[str]:
    """The secrets that a step declares, and those of every step that its code names, however far away."""
    names: Set[str] = set()
    seen: Set[int] = set()
    waiting: List[Step[Any]] = [step]
    while waiting:
        found = waiting.pop()
        if id(found) in seen:
            continue
        seen.add(id(found))
        names.update(found.options.secrets)
        waiting.extend(found.nodes)
        waiting.extend(_named_in(found.function))
    return sorted(names)


def _named_in(function: Callable[..., Any]) -> Iterator[Step[Any]]:
    """The steps that a function's code refers to, by their names or as attributes of modules.

    Also through the plain functions that it calls.
    """
    functions: List[Any] = [function]
    seen: Set[int] = set()
    while functions:
        code = getattr(functions[-1], "__code__", None)
        scope = getattr(functions.pop(), "__globals__", {})
        if code is None or id(code) in seen:
            continue
        seen.add(id(code))
        for value in _values(_names_of(code), scope):
            if isinstance(value, Step):
                yield value
            elif inspect.isfunction(value):
                functions.append(value)


def _names_of(code: CodeType) -> Set[str]:
    names = set(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            names |= _names_of(constant)
    return names


def _values(names: Set[str], scope: Dict[str, Any]) -> Iterator[Any]:
    for name in names:
        value = scope.get(name)
        if isinstance(value, ModuleType):
            yield from (vars(value)[inner] for inner in names if inner in vars(value))
        elif value is not None:
            yield value
