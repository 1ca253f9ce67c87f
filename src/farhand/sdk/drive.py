"""One way to run a procedure, for plain code and for a loop.

A procedure is a generator that decides and records, and leaves what takes time to its driver: it yields a
function to call, or seconds (a float) to sleep. It is sent what the function returned, or thrown what it
raised. `run` calls; `aio.run` awaits. So nothing about calls, retries and records is written twice.
"""

from __future__ import annotations

import time
from typing import Any, Callable, Generator, TypeVar, Union

T = TypeVar("T")

Step = Union[float, Callable[[], Any]]
Procedure = Generator[Step, Any, T]


def run(procedure: Procedure[T]) -> T:
    """Run a procedure to its value or exception, in this thread."""
    try:
        wanted = next(procedure)
        while True:
            try:
                answer = time.sleep(wanted) if isinstance(wanted, (int, float)) else wanted()
            except BaseException as error:  # noqa: BLE001 - the procedure decides
                wanted = procedure.throw(error)
            else:
                wanted = procedure.send(answer)
    except StopIteration as end:
        return end.value
    finally:
        procedure.close()  # it was left in the middle by an interruption that came between two steps
