"""The HTTP API and the console: routes over the services, one record type from store to template.

`app.create_app` builds the whole application; until that is loaded, `front.py` answers. Who may do what is
one table in `access.py`; what a request may look like before any route sees it is `guard.py`; every error
leaves as problem+json through `problems.py`. A file here is a group of routes; the console's pages live in
`pages/`.
"""
