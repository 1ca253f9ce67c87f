"""The status page as HTML: the console's style, no script, nothing to press. Pure."""

from __future__ import annotations

import time
from html import escape
from typing import Iterable, List, Optional, Tuple

from .status import Status, counted, duration, mood, sentence, used_slots
from .tally import FlowTally, Message

REFRESH_S = 10

STYLE = """\
:root {
  color-scheme: light dark;
  --bg: #f6f7f9; --card: #fff; --line: #e3e6ea; --text: #1c2128; --dim: #636c78; --accent: #2a64c0;
  --good: #1a7f4b; --bad: #c0362c; --busy: #2a64c0; --wait: #8a6212;
  --mono: ui-monospace, "SF Mono", "Cascadia Mono", Menlo, Consolas, "DejaVu Sans Mono", monospace;
  --sans: system-ui, -apple-system, "Segoe UI", "Inter", "Noto Sans", "DejaVu Sans", sans-serif;
}
@media (prefers-color-scheme: dark) {
  :root {
    --bg: #101318; --card: #171b22; --line: #272d37; --text: #dfe4ec; --dim: #8f99a8; --accent: #76a8f5;
    --good: #4cc38a; --bad: #f2776d; --busy: #76a8f5; --wait: #d9ad55;
  }
}
* { box-sizing: border-box; }
html { font: 13.5px/1.5 var(--sans); background: var(--bg); color: var(--text); }
body { margin: 0; }
a { color: var(--accent); text-decoration: none; }
a:hover { text-decoration: underline; }
h1 { font-size: 18px; font-weight: 620; margin: 0 0 2px; letter-spacing: -.01em; }
h2 { font-size: 12px; font-weight: 620; margin: 0 0 8px; color: var(--dim); }
code { font-family: var(--mono); font-size: 12px; overflow-wrap: anywhere; }
.top { display: flex; align-items: center; gap: 12px; height: 46px; padding: 0 24px; background: var(--card);
  border-bottom: 1px solid var(--line); font-weight: 650; }
.top span { color: var(--dim); font-weight: 400; }
.top a { margin-left: auto; font-weight: 400; font-size: 12px; }
main { max-width: 1080px; margin: 0 auto; padding: 20px 24px 48px; }
section { margin-top: 22px; }
.health { display: flex; align-items: baseline; gap: 9px; font-size: 14.5px; margin: 0 0 16px;
  overflow-wrap: anywhere; }
.health i { width: 9px; height: 9px; border-radius: 50%; background: currentColor; flex: none; }
.well i { color: var(--good); } .draining i { color: var(--wait); } .failing i, .away i { color: var(--bad); }
.facts { display: flex; flex-wrap: wrap; margin: 0; background: var(--card); border: 1px solid var(--line);
  border-radius: 8px; }
.facts div { padding: 8px 22px 9px 14px; min-width: 0; }
.facts dt { font-size: 11.5px; color: var(--dim); }
.facts dd { margin: 0; font-weight: 520; font-variant-numeric: tabular-nums; overflow-wrap: anywhere; }
.sheet { background: var(--card); border: 1px solid var(--line); border-radius: 8px; overflow-x: auto; }
table { width: 100%; border-collapse: collapse; font-variant-numeric: tabular-nums; }
th { text-align: left; font-weight: 520; font-size: 12px; color: var(--dim); }
th, td { padding: 6px 14px; border-bottom: 1px solid var(--line); white-space: nowrap; }
td.wide { width: 99%; min-width: 240px; white-space: normal; overflow-wrap: anywhere; color: var(--dim); }
tbody tr:last-child td { border-bottom: 0; }
.bad { color: var(--bad); } .good { color: var(--good); } .dim, .none { color: var(--dim); }
.none { padding: 12px 14px; margin: 0; }
details { margin-top: 8px; } summary { cursor: pointer; color: var(--dim); margin-bottom: 6px; }
.log { font: 12px/1.6 var(--mono); padding: 8px 0; }
.log div { display: flex; gap: 14px; padding: 0 14px; }
.log time { color: var(--dim); flex: none; }
.log span { overflow-wrap: anywhere; min-width: 0; }
.warning span { color: var(--wait); } .error span, .critical span { color: var(--bad); }
@media (max-width: 700px) { main { padding: 16px 12px; } .top { padding: 0 12px; } }
"""


def page(status: Status) -> str:
    """The whole page."""
    name = escape(status.name)
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<meta http-equiv="refresh" content="{REFRESH_S}">'
        f'<title>{name}: farhand worker</title><link rel="stylesheet" href="style.css"></head><body>'
        f'<header class="top">farhand <span>worker</span><a href="status.json">status.json</a></header>'
        f'<main><h1>{name}</h1><p class="health {mood(status)}"><i></i>{escape(sentence(status))}</p>'
        f"{_facts(_worker(status))}{_running(status)}{_flows(status)}{_messages(status)}"
        f"<section><h2>This machine</h2>{_facts(_machine(status))}</section></main></body></html>\n"
    )


def _worker(status: Status) -> List[Tuple[str, str]]:
    return [
        ("Server", status.server or "not known yet"),
        ("Last heartbeat", _ago(status, status.answered_at)),
        ("Slots", f"{used_slots(status)} of {status.parallel} in use"),
        ("Completed", str(status.total.completed)),
        ("Failed", str(status.total.failed)),
        ("Labels", ", ".join(status.labels) or "none"),
        ("Up", duration(status.at - status.started_at)),
        ("Version", status.version),
        ("Code", status.code),
    ]


def _machine(status: Status) -> List[Tuple[str, str]]:
    host, has = status.host, status.host.inventory
    memory = None if has.ram_mb is None else f"{has.ram_mb / 1024:.1f} GiB"
    gpus = str(has.gpus) if not has.devices else f"{has.gpus} ({', '.join(has.devices)})"
    return [
        ("Host", host.name),
        ("System", host.system),
        ("Cores", "not known" if has.cpus is None else str(has.cpus)),
        ("Memory", memory or "not known"),
        ("GPUs", "not known" if has.gpus is None else gpus),
        ("Python of user code", host.user_python),
        ("Python of the worker", host.python),
    ]


def _facts(facts: Iterable[Tuple[str, str]]) -> str:
    cells = (f"<div><dt>{escape(name)}</dt><dd>{escape(value)}</dd></div>" for name, value in facts)
    return f'<dl class="facts">{"".join(cells)}</dl>'


def _running(status: Status) -> str:
    rows = [
        (
            job.flow,
            job.kind,
            job.run,
            "starting" if job.since is None else duration(status.at - job.since),
            job.job,
        )
        for job in status.running
    ]
    body = (
        _table(("flow", "kind", "run", "for", "job"), rows)
        if rows
        else '<p class="none">Nothing runs now.</p>'
    )
    return f'<section><h2>Running now</h2><div class="sheet">{body}</div></section>'


def _flows(status: Status) -> str:
    failing = [tally for tally in status.flows if tally.failed]
    rest = [tally for tally in status.flows if not tally.failed]
    shown = f'<div class="sheet">{_tallies(status, failing)}</div>' if failing else ""
    if rest:
        jobs = counted(sum(tally.jobs for tally in rest), "job")
        more = "more " if failing else ""
        line = f"{counted(len(rest), more + 'flow')} without a failure, {jobs}"
        shown += (
            f'<details><summary>{line}</summary><div class="sheet">{_tallies(status, rest)}</div></details>'
        )
    return f"<section><h2>Flows</h2>{shown or _nothing('No job has ended here yet.')}</section>"


def _tallies(status: Status, tallies: Iterable[FlowTally]) -> str:
    rows = [
        (
            tally.flow,
            str(tally.completed),
            str(tally.failed),
            tally.last,
            _ago(status, tally.at),
            tally.message,
        )
        for tally in tallies
    ]
    return _table(("flow", "completed", "failed", "last", "ended", ""), rows)


def _table(heads: Iterable[str], rows: Iterable[Tuple[str, ...]]) -> str:
    head = "".join(f"<th>{escape(text)}</th>" for text in heads)
    body = "".join(
        f"<tr>{''.join(map(_cell, row[:-1]))}<td class=wide>{escape(row[-1])}</td></tr>" for row in rows
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _cell(text: str) -> str:
    look = {"completed": "good", "failed": "bad", "crashed": "bad", "timeout": "bad"}.get(text, "")
    return f'<td class="{look}">{escape(text)}</td>'


def _messages(status: Status) -> str:
    lines = "".join(map(_message, reversed(status.messages)))
    body = f'<div class="sheet log">{lines}</div>' if lines else _nothing("Nothing has been said yet.")
    return f"<section><h2>Recent messages</h2>{body}</section>"


def _message(message: Message) -> str:
    said = f"<time>{_clock(message.at)}</time><span>{escape(message.text)}</span>"
    return f'<div class="{escape(message.level)}">{said}</div>'


def _nothing(text: str) -> str:
    return f'<div class="sheet"><p class="none">{text}</p></div>'


def _ago(status: Status, at: Optional[float]) -> str:
    return "never" if at is None else f"{duration(max(0.0, status.at - at))} ago"


def _clock(at: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at))
