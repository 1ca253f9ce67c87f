-- Services: server processes that are kept on workers while the flows that need them are offered.

-- `spec`, `flows`, `ask` and `secrets` are JSON. `wanted`: nobody has stopped it. `job` is that under which it runs
-- or is to run. The jobs and lines of the service NAME belong to the row service:NAME of runs, which is no run:
-- its origin and state are service, and it is shown to nobody.
CREATE TABLE services (
    name TEXT COLLATE "C" PRIMARY KEY,
    project TEXT NOT NULL,
    flows TEXT NOT NULL,
    spec TEXT NOT NULL,
    ask TEXT NOT NULL,
    secrets TEXT NOT NULL,
    bundle TEXT NOT NULL,
    fingerprint TEXT NOT NULL,
    git TEXT NOT NULL,
    present BIGINT NOT NULL,
    wanted BIGINT NOT NULL,
    state TEXT NOT NULL,
    reason TEXT NOT NULL,
    message TEXT NOT NULL,
    since DOUBLE PRECISION NOT NULL,
    healthy_at DOUBLE PRECISION,
    starts BIGINT NOT NULL,
    restarts BIGINT NOT NULL,
    job TEXT,
    worker TEXT,
    port BIGINT,
    tail TEXT NOT NULL,
    created_at DOUBLE PRECISION NOT NULL,
    updated_at DOUBLE PRECISION NOT NULL
);
CREATE INDEX services_of_project ON services (project);
