"""The HTTP API and the console: routes over the services, one record type from store to template.

`create_app` builds the whole application. Who may do what is one table in `access.py`; what a request
may look like before any route sees it is `guard.py`; every error leaves as problem+json through
`problems.py`. A file here is a group of routes; the console's pages live in `pages/`.
"""

from __future__ import annotations

from .app import create_app
from .settings import WebSettings

__all__ = ["WebSettings", "create_app"]
