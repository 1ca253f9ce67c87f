"""Reasons of code against a worker, as a table."""

from __future__ import annotations

import pytest

from farhand.placement import Refusal
from farhand.suitability import REASONS, BadSpecifier, last_word, name_files, python_fits, refusal, travels

LABEL = Refusal("a", "label_missing", "has no label gpu", True)
BUSY = Refusal("b", "no_slot", "has 1 of 1 slots taken", False)
MISSING = refusal("c", "code_missing", "cannot import it: no module named torch")
DIFFERS = refusal("d", "checkout_differs", "differs in a.py")
CHECKING = refusal("e", "import_check", "is importing it")
OLD = refusal("f", "requires_python", "has Python 3.9.2")


@pytest.mark.parametrize(
    ("refusals", "ends"),
    [
        ([], None),
        ([LABEL], None),
        ([LABEL, MISSING], MISSING),
        ([MISSING, OLD], MISSING),
        ([MISSING, BUSY], None),
        ([MISSING, CHECKING], None),
        ([MISSING, DIFFERS], None),
        ([OLD, DIFFERS], None),
        ([OLD], None),
    ],
)
def test_a_job_fails_once_no_worker_is_left_and_one_had_an_error(refusals, ends) -> None:
    assert last_word(refusals) == ends


def test_only_errors_of_the_code_itself_end_a_job() -> None:
    assert {code for code, kind in REASONS.items() if kind.ends} == {"code_missing", "arguments_do_not_load"}
    assert all(kind.for_good for kind in REASONS.values() if kind.ends)


@pytest.mark.parametrize(
    ("specifier", "version", "fits"),
    [
        ("", "3.9.2", True),
        (">=3.10", "3.9.2", False),
        (">=3.10", "3.10.0", True),
        (">=3.9,<3.12", "3.12.1", False),
        (">=3.9 , <3.12", "3.11.9", True),
        ("~=3.11", "3.12.0", True),
        ("~=3.11", "4.0.0", False),
        ("~=3.11.2", "3.11.1", False),
        ("~=3.11.2", "3.12.0", False),
        ("==3.11.*", "3.11.7", True),
        ("==3.11.*", "3.12.0", False),
        ("!=3.11.*", "3.11.7", False),
        ("==3.11", "3.11.0", True),
        (">3.11", "3.11.0", False),
        ("<=3.11", "3.11.0", True),
        (">=3.10", "", True),
    ],
)
def test_requires_python_is_compared_by_number(specifier: str, version: str, fits: bool) -> None:
    assert python_fits(specifier, version) is fits


@pytest.mark.parametrize("specifier", ["3.10", ">=three", ">=3.10;<4", "=>3"])
def test_what_is_no_specifier_is_refused(specifier: str) -> None:
    with pytest.raises(BadSpecifier, match="is no version of Python"):
        python_fits(specifier, "3.11.0")


def test_files_are_named_up_to_a_few() -> None:
    assert name_files(["a.py"]) == "a.py"
    assert name_files([f"{n}.py" for n in range(8)]) == "0.py, 1.py, 2.py, 3.py, 4.py and 3 more"


@pytest.mark.parametrize(
    ("entry", "does"),
    [
        ("farhand_declared.flow:flow", True),
        ("farhand_declared.call_0_a:node", True),
        ("flows:train", False),
        ("farhand_declared_by_me:train", False),
    ],
)
def test_code_that_was_put_needs_no_checkout(entry: str, does: bool) -> None:
    assert travels(entry) is does
