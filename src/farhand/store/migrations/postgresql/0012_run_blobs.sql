-- The blobs that a run's records name: what a worker with a job of the run may read.

CREATE TABLE run_blobs (
    run TEXT COLLATE "C" NOT NULL REFERENCES runs (id),
    digest TEXT COLLATE "C" NOT NULL,
    PRIMARY KEY (run, digest)
);

INSERT INTO run_blobs (run, digest)
SELECT id, found[1] FROM runs, regexp_matches(params, 'sha256:[0-9a-f]{64}', 'g') AS found
UNION SELECT run, found[1] FROM jobs, regexp_matches(args, 'sha256:[0-9a-f]{64}', 'g') AS found
UNION SELECT run, found[1] FROM task_runs, regexp_matches(value, 'sha256:[0-9a-f]{64}', 'g') AS found
UNION SELECT run, digest FROM artifacts;
