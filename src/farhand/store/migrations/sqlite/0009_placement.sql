-- Named sizes, and what a job's placement is decided by: how deep it is, since when it waits, where it was, which
-- devices it has, and whether it waits for placed calls alone.

CREATE TABLE flavors (
    name TEXT PRIMARY KEY,
    cpus INTEGER,
    gpus INTEGER,
    ram_mb INTEGER,
    updated_at REAL NOT NULL,
    updated_by TEXT NOT NULL
);

ALTER TABLE jobs ADD COLUMN depth INTEGER NOT NULL DEFAULT 0;
ALTER TABLE jobs ADD COLUMN queued_at REAL NOT NULL DEFAULT 0;
ALTER TABLE jobs ADD COLUMN last_worker TEXT;
ALTER TABLE jobs ADD COLUMN devices TEXT NOT NULL DEFAULT '[]';
ALTER TABLE jobs ADD COLUMN blocked TEXT NOT NULL DEFAULT '';
ALTER TABLE jobs ADD COLUMN block INTEGER NOT NULL DEFAULT 0;

UPDATE jobs SET queued_at = created_at WHERE state = 'queued';
