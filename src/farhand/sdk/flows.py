"""``@flow``: what is scheduled, triggered and listed. A plain function otherwise."""

from __future__ import annotations

import inspect
import re
from typing import Any, Callable, Generic, Optional, TypeVar, Union, overload

from farhand.errors import Usage

from . import calls
from .context import current
from .options import NAME, Duration, Labels, Options, refuse_unknown
from .parameters import Parameters
from .script import run_script
from .steps import Step

F = TypeVar("F", bound=Callable[..., Any])


class Flow(Step[F], Generic[F]):
    """A decorated flow.

    Called in a script it runs here, and is recorded; called inside a run it is a call of that run. Its
    parameters are checked and converted by their annotations.
    """

    word = "flow"

    def __init__(
        self, function: F, name: Optional[str], description: Optional[str], options: Options
    ) -> None:
        super().__init__(function, name, options)
        if not NAME.fullmatch(self.name):
            if name is not None:
                raise Usage(f"the name of a flow matches {NAME.pattern}")
            self.name = re.sub(r"[^a-z0-9._-]", "", self.name.lower()).lstrip("._-")[:63] or "flow"
        self.description = description or (inspect.getdoc(function) or "").split("\n\n")[0].replace("\n", " ")
        self._parameters: Optional[Parameters] = None

    @property
    def parameters(self) -> Parameters:
        """The parameters, read from the signature once."""
        if self._parameters is None:
            self._parameters = Parameters(self.function, self.signature)
        return self._parameters

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        bound = self.parameters.bind(args, kwargs)
        frame = current()
        if frame is None:
            return run_script(self, bound)
        return calls.call(self, frame, bound.args, bound.kwargs)


@overload
def flow(function: F, /) -> Flow[F]: ...


@overload
def flow(
    *,
    name: Optional[str] = None,
    description: Optional[str] = None,
    retries: int = 0,
    retry_delay: Duration = 0,
    crash_retries: int = 3,
    timeout: Optional[Duration] = None,
    runs_on: str = "any",
    device: Labels = None,
    device_policy: str = "require",
    strict_lease: bool = False,
) -> Callable[[F], Flow[F]]: ...


def flow(
    function: Optional[F] = None,
    /,
    *,
    name: Optional[str] = None,
    description: Optional[str] = None,
    retries: int = 0,
    retry_delay: Duration = 0,
    crash_retries: int = 3,
    timeout: Optional[Duration] = None,
    runs_on: str = "any",
    device: Labels = None,
    device_policy: str = "require",
    strict_lease: bool = False,
    **unknown: Any,
) -> Union[Flow[F], Callable[[F], Flow[F]]]:
    """Make a flow of a function. Durations are seconds or text such as ``"2h"``.

    ``retries`` pays for exceptions, ``crash_retries`` for engines that died. ``device`` (a label or a list,
    all required) and ``runs_on`` (any, server, worker, a worker's name) say where the run may go.
    """
    refuse_unknown("flow", unknown)
    options = Options(
        retries, retry_delay, crash_retries, timeout, runs_on, device, device_policy, strict_lease
    )
    if function is not None:
        return Flow(function, name, description, options)

    def decorate(decorated: F) -> Flow[F]:
        return Flow(decorated, name, description, options)

    return decorate
