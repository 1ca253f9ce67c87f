"""Write the pages of docs/ that come from the code: ``python docs/generate.py``.

Each page has hand-written text around blocks between ``<!-- generated: NAME -->`` and ``<!-- end -->``;
only the blocks are replaced. tests/docs holds the pages to what this writes.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import click

from farhand import config, errors, lifecycle

DOCS = Path(__file__).resolve().parent
_BLOCK = re.compile(r"(<!-- generated: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)


def lifecycle_blocks() -> dict[str, str]:
    """The diagram of each table of lifecycle.py."""
    return {
        name: f"```mermaid\n{lifecycle.diagram(table)}\n```\n" for name, table in lifecycle.TABLES.items()
    }


def errors_blocks() -> dict[str, str]:
    """One row an exception, in the order of errors.py."""
    rows = ["| exception | code | HTTP | exit | meaning |", "|---|---|---|---|---|"]
    for cls in exceptions():
        code, status, exit_code = (getattr(cls, name, "") for name in ("code", "status", "exit_code"))
        meaning = " ".join((cls.__doc__ or "").split())
        rows.append(f"| `{cls.__name__}` | `{code}` | {status} | {exit_code} | {meaning} |")
    return {"errors": "\n".join(rows) + "\n"}


def exceptions() -> list[type[BaseException]]:
    """Every exception that errors.py defines, in its order."""
    found = [
        cls
        for _, cls in inspect.getmembers(errors, inspect.isclass)
        if issubclass(cls, BaseException) and cls.__module__ == errors.__name__
    ]
    return sorted(found, key=lambda cls: inspect.getsourcelines(cls)[1])


def settings_blocks() -> dict[str, str]:
    """One row a setting, in the order of config.py."""
    rows = ["| `farhand.toml` | environment | default | meaning |", "|---|---|---|---|"]
    for setting in config.SETTINGS:
        default = (
            "one a core" if setting.name == "parallel" else f"`{setting.default}`" * (setting.default != "")
        )
        rows.append(f"| `{setting.name}` | `{setting.variable}` | {default} | {setting.help} |")
    return {"settings": "\n".join(rows) + "\n"}


def http_blocks() -> dict[str, str]:
    """One row a route of the HTTP API; the console's pages are not part of it."""
    from farhand.web.app import create_app

    rows = ["| method | path | answers | meaning |", "|---|---|---|---|"]
    for path, methods in create_app(None).openapi()["paths"].items():  # type: ignore[arg-type]
        for method, route in methods.items():
            answers = next(status for status in route["responses"] if status.startswith("2"))
            meaning = " ".join(route.get("description", "").split())
            rows.append(f"| {method.upper()} | `{path}` | {answers} | {meaning} |")
    return {"routes": "\n".join(rows) + "\n"}


def cli_blocks() -> dict[str, str]:
    """Every command with its help, arguments and options."""
    from farhand.cli.program import main

    pages = (_command(path, command) for path, command in commands(main, "farhand"))
    return {"commands": "\n".join(pages), "worker": _worker_options()}


def _worker_options() -> str:
    from farhand_worker.settings import FILE_NAME, SETTINGS
    from farhand_worker.units import switch

    rows = [f"| option | environment | `{FILE_NAME}` `[worker]` | meaning |", "|---|---|---|---|"]
    for setting in SETTINGS:
        if not setting.own:
            flags = ", ".join(f"`{flag}`" for flag in setting.flags)
            bare = setting.read is switch or not setting.flags[0].startswith("-")
            metavar = "" if bare else f" {setting.metavar}"
            keys = ", ".join(f"`{key}`" for key in setting.keys)
            rows.append(f"| {flags}{metavar} | `{setting.variable}` | {keys} | {setting.help} |")
    return "\n".join(rows) + "\n"


def commands(command: click.Command, path: str) -> Iterator[tuple[str, click.Command]]:
    """The command and all below it, each with the words that call it."""
    if not command.hidden:
        yield path, command
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            child = command.get_command(context, name)
            if child is not None:
                yield from commands(child, f"{path} {name}")


def _command(path: str, command: click.Command) -> str:
    context = click.Context(command, info_name=path)
    usage = " ".join(command.collect_usage_pieces(context))
    lines = [f"## `{path}`", "", inspect.cleandoc(command.help or "").split("\f")[0], ""]
    if not isinstance(command, click.Group):
        lines += [f"    {path} {usage}".rstrip(), ""]
    rows = [row for row in (_parameter(p) for p in command.params) if row]
    if rows:
        lines += ["| option | meaning |", "|---|---|", *rows, ""]
    return "\n".join(lines)


def _parameter(parameter: click.Parameter) -> str:
    if not isinstance(parameter, click.Option) or parameter.hidden:
        return ""
    names = ", ".join(f"`{name}`" for name in [*parameter.opts, *parameter.secondary_opts])
    metavar = "" if parameter.is_flag or parameter.count else f" {_metavar(parameter)}"
    many = " (may be given more than once)" if parameter.multiple else ""
    return f"| {names}{metavar} | {(parameter.help or '').rstrip('.')}{many} |"


def _metavar(option: click.Option) -> str:
    if isinstance(option.type, click.Choice):
        return " or ".join(f"`{choice}`" for choice in option.type.choices)
    return option.metavar or (option.name or "").upper()


def access_blocks() -> dict[str, str]:
    """Every action and which roles may do it."""
    from farhand.engine.roles import MAY, MEANINGS, ROLES

    rows = [f"| action | {' | '.join(ROLES)} | meaning |", f"|---|{'---|' * len(ROLES)}---|"]
    for action, roles in MAY.items():
        marks = " | ".join("yes" if role in roles else "" for role in ROLES)
        rows.append(f"| `{action}` | {marks} | {MEANINGS[action]} |")
    return {"roles": "\n".join(rows) + "\n"}


PAGES: dict[str, Callable[[], dict[str, str]]] = {
    "lifecycle.md": lifecycle_blocks,
    "errors.md": errors_blocks,
    "settings.md": settings_blocks,
    "http.md": http_blocks,
    "cli.md": cli_blocks,
    "access.md": access_blocks,
}


def fill(text: str, blocks: dict[str, str]) -> str:
    """The page with its blocks replaced; raises KeyError on a block that nothing generates."""
    return _BLOCK.sub(lambda match: match[1] + blocks[match[2]] + match[3], text)


def main() -> None:
    """Write every page whose blocks have changed."""
    for name, blocks in PAGES.items():
        page = DOCS / name
        text = page.read_text(encoding="utf-8")
        filled = fill(text, blocks())
        if filled != text:
            page.write_text(filled, encoding="utf-8")
            print(f"wrote docs/{name}")


if __name__ == "__main__":
    main()
