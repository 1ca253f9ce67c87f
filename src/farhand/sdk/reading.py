"""What the source of a node says of itself without being run: its entry, what it takes, what it yields.

A source that this Python cannot read is not judged: the machine that runs it may have a newer one, and says
there what is wrong.
"""

from __future__ import annotations

import ast
import warnings
from typing import Iterator, List, Optional, Set, Union

from .graphs import Member, names_of

ENTRY = "process"

Function = Union[ast.FunctionDef, ast.AsyncFunctionDef]


def mistakes_in(source: str, member: Member) -> List[str]:
    """What is wrong with a source, as far as reading it shows."""
    tree = _parsed(source)
    if tree is None:
        return []
    functions = [each for each in tree.body if isinstance(each, (ast.FunctionDef, ast.AsyncFunctionDef))]
    entry = _entry(tree, functions)
    if isinstance(entry, str):
        return [entry]
    if entry is None or entry.decorator_list:
        return []
    return [*_unfit_parameters(entry, member), *_undeclared(entry, member)]


def is_awaited(source: str) -> bool:
    """Whether the entry is written as ``async def``, as far as reading the source shows."""
    if "async" not in source:
        return False
    tree = _parsed(source)
    if tree is None:
        return False
    functions = [each for each in tree.body if isinstance(each, (ast.FunctionDef, ast.AsyncFunctionDef))]
    return isinstance(_entry(tree, functions), ast.AsyncFunctionDef)


def _parsed(source: str) -> Optional[ast.Module]:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _entry(tree: ast.Module, functions: List[Function]) -> Union[Function, str, None]:
    """The entry; a sentence when there is none, None when only running the source would tell."""
    named = [each for each in functions if each.name == ENTRY]
    if named:
        return named[-1]
    if ENTRY in _bound(tree):
        return None
    public = {each.name: each for each in functions if not each.name.startswith("_")}
    if len(public) == 1:
        return next(iter(public.values()))
    if _is_open(tree):
        return None
    has = "none" if not public else ", ".join(public)
    return f"source needs a function {ENTRY}, or exactly one public function; it has {has}"


def _bound(tree: ast.Module) -> Set[str]:
    """The names that the source's statements bind otherwise than by def."""
    bound: Set[str] = set()
    for each in ast.walk(tree):
        if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store):
            bound.add(each.id)
        elif isinstance(each, ast.alias):
            bound.add((each.asname or each.name).partition(".")[0])
    return bound


def _is_open(tree: ast.Module) -> bool:
    """Whether functions may come from elsewhere: conditional definitions, or ``import *``."""
    star = any(isinstance(each, ast.alias) and each.name == "*" for each in ast.walk(tree))
    inner = any(
        isinstance(each, (ast.If, ast.Try, ast.With))
        and any(isinstance(below, ast.FunctionDef) for below in ast.walk(each))
        for each in tree.body
    )
    return star or inner


def _unfit_parameters(entry: Function, member: Member) -> List[str]:
    arguments = entry.args
    only_by_place = {each.arg for each in getattr(arguments, "posonlyargs", [])}
    plain = [*arguments.args, *arguments.kwonlyargs]
    names = [each.arg for each in plain]
    defaults = {each.arg for each in arguments.args[len(arguments.args) - len(arguments.defaults) :]}
    if not arguments.defaults:
        defaults = set()
    pairs = zip(arguments.kwonlyargs, arguments.kw_defaults)  # noqa: B905 - not in Python 3.9
    defaults |= {each.arg for each, default in pairs if default is not None}
    found = [f"{entry.name}() takes {name!r} by place only" for name in sorted(only_by_place)]
    if arguments.kwarg is None:
        found += [
            f"{entry.name}() has no parameter {name!r}, which the node requires"
            for name in member.requires
            if name not in names and name not in only_by_place
        ]
    found += [
        f"{entry.name}() takes {name!r}, which the node does not require"
        for name in names
        if name not in member.requires and name not in defaults
    ]
    return found


def _undeclared(entry: Function, member: Member) -> List[str]:
    """Keys that are yielded and are no streams of the node, as far as they are written out."""
    streams = {output.name for output in member.provides if output.stream}
    may_yield = set(names_of(member.provides)) if isinstance(entry, ast.AsyncFunctionDef) else streams
    found: List[str] = []
    yields = False
    for each in _own(entry):
        yields = yields or isinstance(each, (ast.Yield, ast.YieldFrom))
        if not isinstance(each, ast.Yield):
            continue
        if each.value is None or isinstance(each.value, ast.Constant):
            found.append(f"{entry.name}() may yield only dicts, as in yield {{'loss': 0.3}}")
        if isinstance(each.value, ast.Dict):
            keys = [key.value for key in each.value.keys if isinstance(key, ast.Constant)]
            found += [
                f"yields {key!r}, "
                + (
                    "which it provides without stream"
                    if key in names_of(member.provides)
                    else "which it does not declare"
                )
                for key in keys
                if key not in may_yield
            ]
    if streams and not yields:
        found.append(f"provides the stream {sorted(streams)[0]!r}, and {entry.name}() yields nothing")
    return list(dict.fromkeys(found))


def _own(entry: Function) -> Iterator[ast.AST]:
    """The nodes of a function without those of functions inside of it."""
    waiting: List[ast.AST] = list(entry.body)
    while waiting:
        each = waiting.pop()
        yield each
        if not isinstance(each, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)):
            waiting.extend(ast.iter_child_nodes(each))
