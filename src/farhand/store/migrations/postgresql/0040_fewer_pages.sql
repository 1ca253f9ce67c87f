-- Every index that a row is in is written for each change of it. Placed calls are in fewer.

-- A placed call is open as long as its job, which says so itself.

DROP INDEX task_runs_open;
CREATE INDEX task_runs_open ON task_runs (run, job) WHERE state IN ('queued', 'running') AND placed IS NULL;

-- One list of the open calls of a run, by what placed them. That a call has one open job is held by the key of its
-- task run, which is written with it.

DROP INDEX jobs_placed_by;
DROP INDEX jobs_open;
CREATE INDEX jobs_open ON jobs (run, parent_job) WHERE state <> 'ended' AND kind <> 'run';
