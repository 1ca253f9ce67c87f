-- A run's own job comes with its run and is found by it; it was kept in these as well, twice for each run.

DROP INDEX jobs_open;
CREATE UNIQUE INDEX jobs_open ON jobs (run, key) WHERE state <> 'ended' AND kind <> 'run';
DROP INDEX jobs_placed_by;
CREATE INDEX jobs_placed_by ON jobs (parent_job) WHERE state <> 'ended' AND parent_job IS NOT NULL;

-- What is under way is few: those of one flow are counted among all that workers hold.

DROP INDEX jobs_live_of_flow;
