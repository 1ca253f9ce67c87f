"""The store: every record of a server, and the only place with SQL in it.

One public method is one transaction. `Store` has an attribute a noun, each with its SQL beside it:

- `database` (with `writer`, `readers`, `guard`, `lock`, `migrate`) is how a database is used: one thread
  writes, and operations that wait share a commit; `session` is what it asks of a dialect, `sqlite` and
  `postgresql` are the two there are;
- `moves` has the compare-and-sets by which anything changes state, `reported` what the events of a report
  change, `endings` what the end of an attempt brings about and `closing` what ends with a run or a call,
  `batch` what reports of jobs and of scripts have in common; `placements` and `returns` write placed calls
  and their ends together, `completions` those of runs, with what both have in common in `whole_ends`;
- `claims` makes leases of what the dispatcher chose, `leases` says where there is room, `handovers` writes
  them; `asked` places and leases a call that is asked for alone;
- `retention` is what deletes records, in small pieces;
- `changes` is what a transaction tells its caller to act on, `rows` how records become rows.

The schema, readable, is in `schema.sql` and `schema.postgresql.sql`.
"""

from __future__ import annotations

from pathlib import Path

from .artifacts import Artifacts
from .audit import Audit
from .changes import Changes, Leased, PlacedOutcome, Recorded
from .database import Database, OnDeath
from .events import Events
from .flavors import Flavors
from .flows import Flows
from .invitations import Invitations
from .jobs import Jobs
from .journals import Journals
from .logs import Logs
from .machines import Machines
from .meta import Meta
from .metrics import Metrics
from .projects import Projects
from .reports import Reports
from .retention import Retention
from .run_blobs import RunBlobs
from .runs import Runs
from .schedules import Schedules
from .secrets import Secrets
from .services import Services
from .signins import SignIns
from .state import StoreState
from .streams import Streams
from .tasks import Tasks
from .tokens import Tokens
from .variables import Variables
from .versions import Versions
from .workers import Workers

__all__ = ["Changes", "Leased", "PlacedOutcome", "Recorded", "Store", "StoreState"]


class Store:
    """All nouns of one open store."""

    def __init__(self, database: Database, meta: Meta) -> None:
        self.database = database
        self.meta = meta
        self.flows = Flows(database)
        self.versions = Versions(database, self.flows)
        self.services = Services(database)
        self.projects = Projects(database, self.flows)
        self.schedules = Schedules(database)
        self.runs = Runs(database)
        self.jobs = Jobs(database)
        self.reports = Reports(database)
        self.tasks = Tasks(database)
        self.logs = Logs(database)
        self.metrics = Metrics(database)
        self.streams = Streams(database)
        self.artifacts = Artifacts(database)
        self.run_blobs = RunBlobs(database)
        self.events = Events(database)
        self.workers = Workers(database)
        self.tokens = Tokens(database)
        self.invitations = Invitations(database)
        self.sign_ins = SignIns(database)
        self.machines = Machines(database)
        self.audit = Audit(database)
        self.secrets = Secrets(database)
        self.variables = Variables(database)
        self.flavors = Flavors(database)
        self.journals = Journals(database)
        self.retention = Retention(database)

    @classmethod
    async def open(
        cls, path: Path, on_death: OnDeath | None = None, url: str = "", *, without_backup: bool = False
    ) -> Store:
        """Open the store in ``path`` (a file, or a home directory, whose ``store.db`` it is then).

        With the ``url`` of a PostgreSQL database the store is there, and ``path`` only names the home.

        Takes the home's lock and migrates what an older farhand wrote, after a backup unless told otherwise.
        ``on_death`` is called, on the event loop, should the writer end: nothing can be stored from then on.
        Raises `StoreLocked` or `StoreTooNew`.
        """
        database = await Database.open(path, on_death, url=url, without_backup=without_backup)
        try:
            meta = await Meta.load(database)
        except BaseException:  # nobody else would close it
            await database.close()
            raise
        return cls(database, meta)

    async def state(self) -> StoreState:
        """What condition the store is in."""
        return await self.database.state()

    async def close(self) -> None:
        """Commit what waits and give the home up."""
        await self.database.close()
