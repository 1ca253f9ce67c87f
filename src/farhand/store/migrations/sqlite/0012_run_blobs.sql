-- The blobs that a run's records name: what a worker with a job of the run may read.

CREATE TABLE run_blobs (
    run TEXT NOT NULL REFERENCES runs (id),
    digest TEXT NOT NULL,
    PRIMARY KEY (run, digest)
);

INSERT OR IGNORE INTO run_blobs (run, digest)
SELECT id, substr(params, instr(params, 'sha256:'), 71) FROM runs WHERE instr(params, 'sha256:') > 0;
INSERT OR IGNORE INTO run_blobs (run, digest)
SELECT run, substr(args, instr(args, 'sha256:'), 71) FROM jobs WHERE instr(args, 'sha256:') > 0;
INSERT OR IGNORE INTO run_blobs (run, digest)
SELECT run, substr(value, instr(value, 'sha256:'), 71) FROM task_runs WHERE instr(value, 'sha256:') > 0;
INSERT OR IGNORE INTO run_blobs (run, digest) SELECT run, digest FROM artifacts;
