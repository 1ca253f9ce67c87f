-- Runs of flows that are called inside of runs, the names of runs, what calls needed, and how far they have come.

ALTER TABLE runs ADD COLUMN name TEXT NOT NULL DEFAULT '';
ALTER TABLE runs ADD COLUMN progress TEXT;
ALTER TABLE runs ADD COLUMN parent TEXT COLLATE "C";
ALTER TABLE runs ADD COLUMN root TEXT COLLATE "C";
ALTER TABLE runs ADD COLUMN key TEXT NOT NULL DEFAULT '';
ALTER TABLE runs ADD COLUMN called TEXT;
CREATE INDEX runs_called ON runs (parent, id) WHERE parent IS NOT NULL;
CREATE INDEX runs_below ON runs (root, key) WHERE root IS NOT NULL;

ALTER TABLE jobs ADD COLUMN nested TEXT;

ALTER TABLE task_runs ADD COLUMN needs TEXT;
ALTER TABLE task_runs ADD COLUMN tags TEXT;
ALTER TABLE task_runs ADD COLUMN progress TEXT;
ALTER TABLE task_runs ADD COLUMN nested TEXT;
ALTER TABLE task_runs ADD COLUMN flow_run TEXT;
CREATE INDEX task_runs_nested ON task_runs (run, nested, number) WHERE nested IS NOT NULL;

ALTER TABLE logs ADD COLUMN nested TEXT;
CREATE INDEX logs_nested ON logs (run, nested, last_number) WHERE nested IS NOT NULL;

ALTER TABLE metrics ADD COLUMN nested TEXT;
CREATE INDEX metrics_nested ON metrics (run, nested, last_number) WHERE nested IS NOT NULL;

ALTER TABLE artifacts ADD COLUMN nested TEXT;
