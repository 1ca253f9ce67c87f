"""``@flow``: what is scheduled, triggered and listed. A plain function otherwise."""

from __future__ import annotations

import inspect
import re
import sys
from types import FrameType
from typing import (
    TYPE_CHECKING,
    Any,
    Callable,
    Dict,
    Generic,
    List,
    Mapping,
    Optional,
    TypeVar,
    Union,
    overload,
)

from farhand.errors import InvalidParameters, Usage

from . import calls
from .context import current
from .eager import check_may_start
from .hooks import Hooks
from .options import NAME, DeclaredOptions, FlowOptions, Options, hooks_of, refuse_unknown
from .parameters import Parameters, shown
from .schedules import listed
from .script import run_script
from .steps import Step, declared_by

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from .graphs import Graph

F = TypeVar("F", bound=Callable[..., Any])


NAME_CHARS_MAX = 200


def _caller_of(frame: FrameType) -> str:
    """The module whose code a frame runs."""
    return frame.f_globals.get("__name__", "__main__")


def _template(run_name: Optional[str]) -> Optional[str]:
    if run_name is not None and (not isinstance(run_name, str) or not run_name.strip()):
        raise Usage("run_name must be text, with the names of parameters in braces")
    return run_name


def _services(given: Any) -> List[Any]:
    if not given:
        return []
    from .services import listed as services_listed  # noqa: PLC0415 - most scripts have none

    return services_listed(given)


class Flow(Step[F], Generic[F]):
    """A decorated flow, or one of nodes: ``Flow("train", nodes=[fit], inputs=["lr"], outputs=["score"])``.

    Called in a script it runs here, and is recorded; called inside a run it is a call of that run. Its
    parameters are checked and converted by their annotations.
    """

    word = "flow"
    is_flow = True

    @overload
    def __init__(self, function: str, /, **declared: Unpack[DeclaredOptions]) -> None: ...

    @overload
    def __init__(self, function: F, options: Options, hooks: Hooks, given: Mapping[str, Any], /) -> None: ...

    def __init__(self, function: Any, *made: Any, **declared: Any) -> None:
        self.graph: Optional[Graph] = None
        self._entry = ""
        if made:
            self._decorate(function, *made)
        else:
            self._declare(function, declared, _caller_of(sys._getframe(1)))  # pyright: ignore[reportPrivateUsage]

    def _declare(self, name: str, declared: Dict[str, Any], module: str) -> None:
        """Make the flow of its nodes; docs/declared.md says how."""
        from . import assembling  # noqa: PLC0415 - for those who declare flows

        if not isinstance(name, str) or not NAME.fullmatch(name):
            raise Usage(f"the name of a flow matches {NAME.pattern}")
        function, self.graph, steps = assembling.assemble(name, declared, module)
        refuse_unknown("flow", declared)
        self._decorate(function, Options(declared), hooks_of(declared), {**declared, "name": name})
        self.nodes = list(steps.values())
        kept = [step.service for step in self.nodes if step.service is not None]
        self.services += [service for service in kept if service not in self.services]

    @property
    def entry(self) -> str:
        """Where it is found: its module, and its function there, or the variable it is kept in."""
        module = self.function.__module__
        if self.graph is not None and self._entry == f"{module}:{self.function.__qualname__}":
            kept = vars(sys.modules.get(module, sys)).items()
            self._entry = next((f"{module}:{name}" for name, value in kept if value is self), self._entry)
        return self._entry

    @entry.setter
    def entry(self, entry: str) -> None:  # pyright: ignore[reportIncompatibleVariableOverride]
        self._entry = entry

    def _decorate(self, function: Any, options: Options, hooks: Hooks, given: Mapping[str, Any]) -> None:
        name = given.get("name")
        super().__init__(function, name, options, hooks)
        if not NAME.fullmatch(self.name):
            if name is not None:
                raise Usage(f"the name of a flow matches {NAME.pattern}")
            self.name = re.sub(r"[^a-z0-9._-]", "", self.name.lower()).lstrip("._-")[:63] or "flow"
        told = given.get("description") or (inspect.getdoc(function) or "").split("\n\n")[0]
        self.description = str(told).replace("\n", " ")
        self.run_name = _template(given.get("run_name"))
        self.schedules = listed(given.get("schedule"))
        self.services = _services(given.get("services"))
        self._parameters: Optional[Parameters] = None
        self.invoke = self._invoke

    @property
    def parameters(self) -> Parameters:
        """The parameters, read from the signature once."""
        if self._parameters is None:
            self._parameters = Parameters(self.function, self.signature)
        return self._parameters

    def name_of_run(self, arguments: Dict[str, Any]) -> Optional[str]:
        """What a run with these arguments is called, by the template ``run_name``. Never raises."""
        if self.run_name is None:
            return None
        try:
            return self.run_name.format(**arguments)[:NAME_CHARS_MAX]
        except Exception as error:  # noqa: BLE001 - formatting runs code of the arguments
            return f"{self.name} ({self.run_name!r} cannot be filled in: {type(error).__name__})"[
                :NAME_CHARS_MAX
            ]

    def settings(self) -> Dict[str, Any]:
        """What the queue and the agent need to know: the options, the hooks, the secrets of all it calls."""
        return {
            **self.options.settings(),
            "secrets": sorted({*declared_by(self), *self.hooks.secrets}),
            "hooks": self.hooks.described(),
        }

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        frame = current()
        if frame is None:
            check_may_start(self.name)
            return run_script(self, self.parameters.bind(args, kwargs))
        return calls.call(self, frame, args, kwargs)

    def called(self, args: Any, kwargs: Any) -> Dict[str, Any]:
        """What the record of a call inside of a run says of the flow and of what it is called with."""
        try:
            arguments = self.parameters.bind(args, kwargs).arguments
        except InvalidParameters:  # the call itself will say so
            arguments = self.signature.bind(*args, **kwargs).arguments
        return {
            "name": self.name,
            "entry": self.entry,
            "params": shown(arguments),
            "run_name": self.name_of_run(arguments),
            "hooks": self.hooks.described() or None,
            "secrets": sorted({*declared_by(self), *self.hooks.secrets}) or None,
        }

    def _invoke(self, *args: Any, **kwargs: Any) -> Any:
        """As a call inside of a run, when its arguments are there."""
        bound = self.parameters.bind(args, kwargs)
        return self.body(*bound.args, **bound.kwargs)


@overload
def flow(function: F, /) -> Flow[F]: ...


@overload
def flow(**given: Unpack[FlowOptions]) -> Callable[[F], Flow[F]]: ...


def flow(function: Optional[F] = None, /, **given: Any) -> Union[Flow[F], Callable[[F], Flow[F]]]:
    """Make a flow of a function. Durations are seconds or text such as ``"2h"``.

    ``retries`` pays for exceptions (those that ``retry_on`` names, or all), ``crash_retries`` for engines
    that died. ``timeout`` limits the time, ``silence_timeout`` the time without a line, a metric or a task.
    ``device`` (a label or a list, all required), ``runs_on`` (any, server, worker, a worker's name) and a
    size (``cpus``, ``gpus``, ``ram`` in megabytes or text such as ``"8G"``, or a ``flavor``) say where the
    run may go, ``priority`` how soon, ``max_concurrent`` beside how many others of its kind.
    ``run_name`` names its runs by their parameters, as in ``"{city} of {day:%d %B}"``.
    ``isolated`` gives it a process of its own. The hooks are called with a summary of the run at its end.
    ``schedule`` (`cron`, `every`, or a list of them) starts runs on a server by the clock. ``services`` are
    server processes that are kept on workers while the flow is offered.
    """
    refuse_unknown("flow", given)
    options, hooks = Options(given), hooks_of(given)
    if function is not None:
        return Flow(function, options, hooks, given)

    def decorate(decorated: F) -> Flow[F]:
        return Flow(decorated, options, hooks, given)

    return decorate
