"""Reasons of code against a worker: it lacks a module, other code is checked out there, its Python is old.

Placement decides by what a worker is and has; these decide by what the job's code makes of it. Pure: who
knows what about a worker is asked elsewhere, and handed to `placement.place` with each candidate.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from .placement import Refusal


@dataclass(frozen=True, slots=True)
class Kind:
    """What follows from a reason. ``for_good``: the worker is not waited for; ``ends``: it is an error of the
    job's own, which ends the job once no worker is left."""

    for_good: bool
    ends: bool = False


REASONS = {
    "hosts_none": Kind(for_good=True),
    "requires_python": Kind(for_good=True),
    "ends_too_soon": Kind(for_good=True),
    "checkout_differs": Kind(for_good=True),
    "checkout_unknown": Kind(for_good=False),
    "code_missing": Kind(for_good=True, ends=True),
    "arguments_do_not_load": Kind(for_good=True, ends=True),
    "import_slow": Kind(for_good=False),
    "import_check": Kind(for_good=False),
}
"""Code of a refusal → what follows from it."""

TRAVELS = "farhand_declared."
"""Modules of code that was put as a document: it goes wherever it is placed, and no checkout has it."""

_REPAIRABLE = frozenset({"checkout_differs", "ends_too_soon"})
"""Reasons that another machine, or a person, can take away: a job is not failed while one of them is left."""

_FILES_NAMED = 5


def refusal(worker: str, code: str, message: str) -> Refusal:
    """A reason of code against a worker."""
    return Refusal(worker, code, message, REASONS[code].for_good)


def travels(entry: str) -> bool:
    """Whether an entry's code is handed over whole, so that what a worker has checked out does not matter."""
    return entry.startswith(TRAVELS)


def last_word(refusals: Sequence[Refusal]) -> Refusal | None:
    """The refusal whose error the job fails with: no worker is left, and one of them had an error to show."""
    if not all(each.for_good for each in refusals) or any(each.code in _REPAIRABLE for each in refusals):
        return None
    return next((each for each in refusals if each.code in REASONS and REASONS[each.code].ends), None)


def name_files(files: Sequence[str]) -> str:
    """A few files by name, and how many more there are."""
    named = ", ".join(files[:_FILES_NAMED])
    more = len(files) - _FILES_NAMED
    return f"{named} and {more} more" if more > 0 else named


# ---------------------------------------------------------------- requires-python


_CLAUSE = re.compile(r"\s*(===|==|!=|<=|>=|~=|<|>)\s*(\d+(?:\.\d+)*)(\.\*)?\s*\Z")


class BadSpecifier(ValueError):
    """The text is no list of versions such as ``>=3.10,<4``."""


def python_fits(specifier: str, version: str) -> bool:
    """Whether a Python of ``version`` satisfies ``requires-python``; an unknown version does.

    The clauses are those of PEP 440 with plain numbers. Raises `BadSpecifier`.
    """
    numbers = tuple(int(part) for part in re.findall(r"\d+", version)[:3])
    return (
        all(_holds(clause, numbers) for clause in specifier.split(",") if clause.strip()) if numbers else True
    )


def _holds(clause: str, numbers: tuple[int, ...]) -> bool:
    match = _CLAUSE.match(clause)
    if match is None:
        raise BadSpecifier(f"{clause.strip()!r} is no version of Python such as >=3.10")
    operator, text, wildcard = match.groups()
    asked = tuple(map(int, text.split(".")))
    same = numbers[: len(asked)] == asked if wildcard else _padded(numbers) == _padded(asked)
    compared = {
        "==": same,
        "===": same,
        "!=": not same,
        ">=": _padded(numbers) >= _padded(asked),
        "<=": _padded(numbers) <= _padded(asked),
        ">": _padded(numbers) > _padded(asked),
        "<": _padded(numbers) < _padded(asked),
        "~=": _padded(numbers) >= _padded(asked) and numbers[: len(asked) - 1] == asked[:-1],
    }
    return compared[operator]


def _padded(numbers: tuple[int, ...]) -> tuple[int, ...]:
    return (*numbers, 0, 0, 0)[:3] if len(numbers) < 3 else numbers
