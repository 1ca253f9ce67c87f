-- What a run's own job called is found by the run; only what other jobs called, of which a run may have many, is in an
-- index by its job.

DROP INDEX task_runs_of_job;
CREATE INDEX task_runs_of_call ON task_runs (job, number) WHERE length(job) > length(run);

-- The calls of a run that are open are those that wait, and those that workers hold, which are few: one that is handed
-- over as it is asked for, and is held until it ends, was in the list of all that are open as well.

DROP INDEX jobs_open;
CREATE INDEX jobs_waiting ON jobs (run, parent_job) WHERE state IN ('queued', 'parked') AND kind <> 'run';
DROP INDEX jobs_held;
CREATE INDEX jobs_held ON jobs (worker, run, parent_job) WHERE state IN ('leased', 'running');
