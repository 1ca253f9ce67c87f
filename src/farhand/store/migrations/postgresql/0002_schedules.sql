-- Projects, schedules and their fires; runs know what they were scheduled for, flows the file they are in.

ALTER TABLE flows ADD COLUMN file TEXT NOT NULL DEFAULT '';
ALTER TABLE runs ADD COLUMN schedule TEXT;
ALTER TABLE runs ADD COLUMN scheduled_for DOUBLE PRECISION;

-- What the last inspection of each project found; `errors` and `left_out` are JSON.
CREATE TABLE projects (
    name TEXT COLLATE "C" PRIMARY KEY,
    origin TEXT NOT NULL,
    place TEXT NOT NULL,
    bundle TEXT NOT NULL,
    size BIGINT NOT NULL,
    files BIGINT NOT NULL,
    errors TEXT NOT NULL,
    left_out TEXT NOT NULL,
    updated_at DOUBLE PRECISION NOT NULL
);

-- `spec` and `params` are JSON. Fire times up to `since` are dealt with.
CREATE TABLE schedules (
    id TEXT COLLATE "C" PRIMARY KEY,
    flow TEXT NOT NULL,
    project TEXT NOT NULL,
    spec TEXT NOT NULL,
    params TEXT NOT NULL,
    paused BIGINT NOT NULL,
    present BIGINT NOT NULL,
    since DOUBLE PRECISION NOT NULL,
    created_at DOUBLE PRECISION NOT NULL,
    updated_at DOUBLE PRECISION NOT NULL
);
CREATE INDEX schedules_of_project ON schedules (project);

-- One row a schedule and fire time, whatever came of it. `missed` are earlier fires that it stands for.
CREATE TABLE fires (
    schedule TEXT COLLATE "C" NOT NULL REFERENCES schedules (id),
    at DOUBLE PRECISION NOT NULL,
    fired_at DOUBLE PRECISION NOT NULL,
    outcome TEXT NOT NULL,
    message TEXT NOT NULL,
    run TEXT,
    late BIGINT NOT NULL,
    missed BIGINT NOT NULL,
    PRIMARY KEY (schedule, at)
);
