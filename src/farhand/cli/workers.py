"""``farhand workers``: the machines that work for the server."""

from __future__ import annotations

from typing import Any

import click

from farhand_worker.address import parse

from ..model import SERVICE
from .client import Client, segment
from .naming import worker_argument
from .options import calls_server, json_option
from .output import moment, print_facts, print_json, print_table
from .pasting import bare_line, installed_line
from .tokens import duration, token_label, token_name


@click.group()
def workers() -> None:
    """The machines that work for the server."""


@workers.command("list")
@json_option
@calls_server
def list_workers(client: Client, as_json: bool) -> None:
    """List the workers."""
    found = client.get("/workers")["items"]
    if as_json:
        print_json(found)
        return
    print_table(
        ("worker", "state", "labels", "busy", "host", "python", "last seen"),
        [
            (
                worker["name"],
                _state(worker),
                ", ".join(worker["labels"]) or "-",
                f"{sum(held['kind'] != SERVICE for held in worker['holds'])}/{worker['parallel']}",
                worker["host"] or "-",
                worker["python"] or "-",
                moment(worker["last_seen_at"]),
            )
            for worker in found
        ],
    )


@workers.command()
@worker_argument
@json_option
@calls_server
def show(client: Client, worker: str, as_json: bool) -> None:
    """Show one worker."""
    found = client.get(f"/workers/{segment(worker)}")
    if as_json:
        print_json(found)
        return
    inventory = found["reported"].get("inventory") or {}
    print_facts(
        {
            "worker": found["name"],
            "state": f"{found['name']} {found['message']}",
            "labels": ", ".join(found["labels"]),
            "slots": str(found["parallel"]),
            "warning": found["warning"],
            "runs": ", ".join(
                f"{held['name']} ({held['run']})" for held in found["holds"] if held["kind"] != SERVICE
            ),
            "keeps": ", ".join(held["name"] for held in found["holds"] if held["kind"] == SERVICE),
            "has": _has(inventory),
            "host": found["host"],
            "address": found["address"],
            "python": found["python"],
            "environment": found["environment"],
            "checkout": " ".join(filter(None, (found["checkout"], found["git"]))),
            "version": f"{found['version']} (protocol {found['protocol']})",
            "shares": ", ".join(found["reported"].get("shared_paths", [])),
            "services at": found["reported"].get("service_host", ""),
            "status page": found["reported"].get("status_url", ""),
            "attached": moment(found["attached_at"]),
            "last seen": moment(found["last_seen_at"]),
        }
    )
    if found["state"] != "offline":
        _print_unfit(client.get(f"/workers/{segment(found['name'])}/code")["items"])


def _print_unfit(code: list[dict[str, Any]]) -> None:
    """The flows that a worker is not given, and why: its checkout differs, or a module is missing there."""
    rows = [(of["flow"], of["message"]) for of in code if of["state"] not in ("ready", "unchecked")]
    if rows:
        click.echo("")
        print_table(("flow it is not given", "why"), rows)


def _has(inventory: dict[str, Any]) -> str:
    """What a machine has to lend, as far as that is known."""
    said = [
        f"{name} {inventory[key]}{unit}"
        for name, key, unit in (("cpus", "cpus", ""), ("gpus", "gpus", ""), ("ram", "ram_mb", "M"))
        if inventory.get(key) is not None
    ]
    devices = inventory.get("devices") or []
    return ", ".join(said) + (f" (devices {' '.join(map(str, devices))})" if devices else "")


def _state(worker: dict[str, Any]) -> str:
    if worker.get("needs_token"):  # a server of before does not say it
        return f"{worker['state']}, needs a new token"
    if worker["draining"] and worker["state"] == "online":
        return "drained" if worker["drained"] else "draining"
    return worker["state"]


@workers.command()
@worker_argument
@json_option
@calls_server
def drain(client: Client, worker: str, as_json: bool) -> None:
    """Hand WORKER nothing new; what it runs goes on. Holds until `resume`, over restarts too."""
    _order(client, worker, "drain", as_json, "takes nothing new from now on", "takes nothing new already")


@workers.command()
@worker_argument
@json_option
@calls_server
def resume(client: Client, worker: str, as_json: bool) -> None:
    """Hand WORKER jobs again."""
    _order(client, worker, "resume", as_json, "takes work again", "was not told to drain")


def _order(client: Client, worker: str, order: str, as_json: bool, done: str, idle: str) -> None:
    answer = client.post(f"/workers/{segment(worker)}/{order}")
    _say(answer, f"{worker} {done if answer['changed'] else idle}", as_json)


def _say(answer: dict[str, Any], sentence: str, as_json: bool) -> None:
    """What became of an order: the server's answer, or a sentence about it."""
    if as_json:
        print_json(answer)
    else:
        click.echo(sentence)


@workers.command()
@worker_argument
@click.argument("slots", type=click.IntRange(0))
@json_option
@calls_server
def slots(client: Client, worker: str, slots: int, as_json: bool) -> None:
    """Give WORKER so many slots, until its program is started anew."""
    answer = client.patch(f"/workers/{segment(worker)}", {"parallel": slots})
    _say(answer, f"{worker} has {answer['parallel']} slot{'s' * (answer['parallel'] != 1)}", as_json)
    if answer["warning"]:
        click.echo(f"warning: {answer['warning']}", err=True)


@workers.command()
@worker_argument
@click.option("--settle", is_flag=True, help="Queue what it holds again at once: its machine is surely dead.")
@json_option
@calls_server
def forget(client: Client, worker: str, settle: bool, as_json: bool) -> None:
    """Forget WORKER, which is gone. Should it come back, it registers again."""
    answer = client.post(f"/workers/{segment(worker)}/forget", {"settle": settle})
    jobs = "" if not answer["settled"] else f", and its jobs ({answer['settled']}) are queued again"
    _say(answer, f"{worker} is forgotten{jobs}", as_json)


@workers.command()
@click.argument("name")
@click.option("--labels", default="", metavar="A,B", help="What the worker is allowed to be, such as gpu.")
@click.option("--expires", default="365d", metavar="TIME", help="How long its token is valid, such as 30d.")
@click.option("--within", default="15m", metavar="TIME", help="How long the invitation waits, such as 1h.")
@click.option("--to", metavar="URL", help="The server's address as the other machine reaches it.")
@click.option(
    "--installed", is_flag=True, help="A short line, for a machine that has farhand-worker already."
)
@json_option
@calls_server
def invite(
    client: Client,
    name: str,
    labels: str,
    expires: str,
    within: str,
    to: str | None,
    installed: bool,
    as_json: bool,
) -> None:
    """Print one line that makes another machine the worker NAME, once. It needs Python 3.9 there, no more.

    The line holds a code, which that machine exchanges for its token over https; options may follow it.
    """
    wanted = {
        "name": token_name(name),
        "labels": [token_label(label.strip()) for label in labels.split(",") if label.strip()],
        "expires_s": duration("--expires", expires),
        "valid_s": duration("--within", within),
    }
    made = client.post("/workers/invitations", wanted)
    url = to or _reached(client.url, made["url"])
    pin = made["pin"] if to is None else ""
    line = (installed_line if installed else bare_line)(made["code"], url, pin)
    if as_json:
        print_json(made | {"url": url, "line": line})
        return
    click.echo(line)
    click.echo(f"worker {name}, to be used once until {moment(made['expires_at'])}", err=True)
    if _is_loopback(url):
        click.echo("this address is reached from the server's own machine only; --to names another", err=True)


def _reached(called: str, told: str) -> str:
    """The server's address for other machines: as it was called here, unless that is the loopback's."""
    return told if _is_loopback(called) and told else called


def _is_loopback(url: str) -> bool:
    return parse(url, insecure=True).loopback
