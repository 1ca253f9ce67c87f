"""Objects of user code whose own methods end in any way: whatever they raise ends a call, never an engine."""

from __future__ import annotations

import pytest

from tests.integration.conftest import Begin

ENDS = ["SystemExit(0)", "KeyboardInterrupt()", "RecursionError()", "GeneratorExit()"]
PIPELINE = """
def ends(*_):
    raise {end}

class Error(Exception):
    {method} = ends

class Value:
    {method} = ends

@task
def fails(): raise Error('no')

@task
def gives(): return Value()

@task
def takes(value): return 1

@flow
def raising(): raise Error('no')

@flow
def returning(): return Value()

@flow
def calling():
    told = []
    for call in (fails, gives, lambda: takes(Value()), lambda: takes.submit(Value()).result()):
        try:
            call()
        except BaseException as error:
            told.append(type(error).__name__)
    return len(told) < 5
"""


@pytest.mark.parametrize("method", ["__str__", "__reduce_ex__"])
@pytest.mark.parametrize("end", ENDS)
def test_an_object_that_ends_whoever_touches_it_ends_no_engine(begin: Begin, method: str, end: str) -> None:
    agent = begin(PIPELINE.format(method=method, end=end))
    states = [agent.run(f"pipeline:{flow}")["state"] for flow in ("raising", "returning", "calling")]
    assert states == ["failed", "completed" if method == "__str__" else "failed", "completed"]
