"""The console: a file a page, with its fragments and actions.

A page is rendered whole by the server. Elements with ``hx-trigger="sse:…"`` then ask for their fragment
again whenever the event stream says that something changed; nothing polls. Links are relative, so that a
proxy may publish the console under any path.
"""

from __future__ import annotations

from pathlib import Path

from . import access, api, compare, flows, projects, run, runs, schedules, services, signin, workers

STATIC = Path(__file__).with_name("static")
"""The files served under static/."""

PAGES = (signin, runs, run, compare, flows, schedules, services, projects, workers, access, api)
"""Each with its ``router``."""
