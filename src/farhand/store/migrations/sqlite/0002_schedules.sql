-- Projects, schedules and their fires; runs know what they were scheduled for, flows the file they are in.

ALTER TABLE flows ADD COLUMN file TEXT NOT NULL DEFAULT '';
ALTER TABLE runs ADD COLUMN schedule TEXT;
ALTER TABLE runs ADD COLUMN scheduled_for REAL;

-- What the last inspection of each project found; `errors` and `left_out` are JSON.
CREATE TABLE projects (
    name TEXT PRIMARY KEY,
    origin TEXT NOT NULL,
    place TEXT NOT NULL,
    bundle TEXT NOT NULL,
    size INTEGER NOT NULL,
    files INTEGER NOT NULL,
    errors TEXT NOT NULL,
    left_out TEXT NOT NULL,
    updated_at REAL NOT NULL
);

-- `spec` and `params` are JSON. Fire times up to `since` are dealt with.
CREATE TABLE schedules (
    id TEXT PRIMARY KEY,
    flow TEXT NOT NULL,
    project TEXT NOT NULL,
    spec TEXT NOT NULL,
    params TEXT NOT NULL,
    paused INTEGER NOT NULL,
    present INTEGER NOT NULL,
    since REAL NOT NULL,
    created_at REAL NOT NULL,
    updated_at REAL NOT NULL
);
CREATE INDEX schedules_of_project ON schedules (project);

-- One row a schedule and fire time, whatever came of it. `missed` are earlier fires that it stands for.
CREATE TABLE fires (
    schedule TEXT NOT NULL REFERENCES schedules (id),
    at REAL NOT NULL,
    fired_at REAL NOT NULL,
    outcome TEXT NOT NULL,
    message TEXT NOT NULL,
    run TEXT,
    late INTEGER NOT NULL,
    missed INTEGER NOT NULL,
    PRIMARY KEY (schedule, at)
);
