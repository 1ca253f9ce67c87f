-- Named sizes, and what a job's placement is decided by: how deep it is, since when it waits, where it was, which
-- devices it has, and whether it waits for placed calls alone.

CREATE TABLE flavors (
    name TEXT COLLATE "C" PRIMARY KEY,
    cpus BIGINT,
    gpus BIGINT,
    ram_mb BIGINT,
    updated_at DOUBLE PRECISION NOT NULL,
    updated_by TEXT NOT NULL
);

ALTER TABLE jobs ADD COLUMN depth BIGINT NOT NULL DEFAULT 0;
ALTER TABLE jobs ADD COLUMN queued_at DOUBLE PRECISION NOT NULL DEFAULT 0;
ALTER TABLE jobs ADD COLUMN last_worker TEXT;
ALTER TABLE jobs ADD COLUMN devices TEXT NOT NULL DEFAULT '[]';
ALTER TABLE jobs ADD COLUMN blocked TEXT NOT NULL DEFAULT '';
ALTER TABLE jobs ADD COLUMN block BIGINT NOT NULL DEFAULT 0;

UPDATE jobs SET queued_at = created_at WHERE state = 'queued';
