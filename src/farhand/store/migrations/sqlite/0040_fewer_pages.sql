-- Every tree of the file that a row is in costs a page of the log for each change of it. Placed calls are in fewer.

-- A placed call is open as long as its job, which says so itself.

DROP INDEX task_runs_open;
CREATE INDEX task_runs_open ON task_runs (run, job) WHERE state IN ('queued', 'running') AND placed IS NULL;

-- One list of the open calls of a run, by what placed them. That a call has one open job is held by the key of its
-- task run, which is written with it.

DROP INDEX jobs_placed_by;
DROP INDEX jobs_open;
CREATE INDEX jobs_open ON jobs (run, parent_job) WHERE state <> 'ended' AND kind <> 'run';

-- Rows that are little more than their key are kept by it alone.

CREATE TABLE recorded_by_key (
    job TEXT NOT NULL REFERENCES jobs (id),
    lease INTEGER NOT NULL,
    source TEXT NOT NULL,
    seq INTEGER NOT NULL,
    PRIMARY KEY (job, lease, source)
) WITHOUT ROWID;
INSERT INTO recorded_by_key (job, lease, source, seq)
    SELECT job, lease, source, seq FROM recorded ORDER BY job, lease, source;
DROP TABLE recorded;
ALTER TABLE recorded_by_key RENAME TO recorded;
