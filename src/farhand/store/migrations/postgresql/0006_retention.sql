-- The host a run is on, to look for; indexes by which old records are found; flows whose runs are being deleted.

ALTER TABLE runs ADD COLUMN host TEXT NOT NULL DEFAULT '';

UPDATE runs SET host = coalesce(
    (
        SELECT attempts.host FROM jobs JOIN attempts ON attempts.job = jobs.id
        WHERE jobs.run = runs.id AND jobs.key = '' ORDER BY attempts.number DESC LIMIT 1
    ),
    ''
);

CREATE INDEX runs_on_host ON runs (host, id) WHERE host <> '';
CREATE INDEX runs_ended ON runs (ended_at, id) WHERE ended_at IS NOT NULL;
CREATE INDEX events_of_no_run ON events (at) WHERE run IS NULL;

CREATE TABLE deletions (
    flow TEXT PRIMARY KEY,
    last_run TEXT COLLATE "C" NOT NULL,
    asked_at DOUBLE PRECISION NOT NULL
);
