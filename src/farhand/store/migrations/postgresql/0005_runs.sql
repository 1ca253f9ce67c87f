-- Runs that a person retried, runs that were started together, and outcomes taken over from an earlier run.

ALTER TABLE runs ADD COLUMN retry_of TEXT;
ALTER TABLE runs ADD COLUMN sweep TEXT;
CREATE INDEX runs_retried ON runs (retry_of) WHERE retry_of IS NOT NULL;
CREATE INDEX runs_of_sweep ON runs (sweep, id) WHERE sweep IS NOT NULL;

ALTER TABLE task_runs ADD COLUMN seeded BIGINT NOT NULL DEFAULT 0;
