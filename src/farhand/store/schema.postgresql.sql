-- The whole store, as the migrations leave it. A test holds this file against them.
-- This is PostgreSQL's; schema.sql is SQLite's. Ids sort by their bytes, whatever the database's locale.
-- Moments (*_at) are seconds since the epoch, UTC. JSON is text.

-- One row. `incarnation` is new at every restore; `lease` is the one counter that fences attempts.
CREATE TABLE meta (
    id BIGINT PRIMARY KEY CHECK (id = 1),
    incarnation TEXT NOT NULL,
    lease BIGINT NOT NULL
);

CREATE TABLE flows (
    name TEXT COLLATE "C" PRIMARY KEY,
    project TEXT NOT NULL,
    entry TEXT NOT NULL,
    description TEXT NOT NULL,
    schema TEXT NOT NULL,
    ask TEXT NOT NULL,
    settings TEXT NOT NULL,
    bundle TEXT NOT NULL,
    fingerprint TEXT NOT NULL,
    present BIGINT NOT NULL,
    updated_at DOUBLE PRECISION NOT NULL,
    file TEXT NOT NULL DEFAULT '',
    tags TEXT NOT NULL DEFAULT '[]',
    git TEXT NOT NULL DEFAULT ''
);
CREATE INDEX flows_of_project ON flows (project);

-- A flow that was called inside of a run has a run too: `parent` called it, `root` has the job (or journal) it
-- goes on under, `key` is that of the call there, `called` what a later end of it needs to know, as JSON.
CREATE TABLE runs (
    id TEXT COLLATE "C" PRIMARY KEY,
    flow TEXT NOT NULL,
    state TEXT NOT NULL,
    reason TEXT NOT NULL,
    message TEXT NOT NULL,
    params TEXT NOT NULL,
    created_at DOUBLE PRECISION NOT NULL,
    project TEXT NOT NULL,
    origin TEXT NOT NULL,
    bundle TEXT NOT NULL,
    fingerprint TEXT NOT NULL,
    started_at DOUBLE PRECISION,
    ended_at DOUBLE PRECISION,
    worker TEXT,
    attempt BIGINT NOT NULL,
    result TEXT,
    error TEXT,
    idempotency_key TEXT,
    schedule TEXT,
    scheduled_for DOUBLE PRECISION,
    retry_of TEXT,
    sweep TEXT,
    host TEXT NOT NULL DEFAULT '',
    name TEXT NOT NULL DEFAULT '',
    progress TEXT,
    parent TEXT COLLATE "C",
    root TEXT COLLATE "C",
    key TEXT NOT NULL DEFAULT '',
    called TEXT
);
CREATE INDEX runs_of_flow ON runs (flow, id);
CREATE INDEX runs_in_state ON runs (state, id);
CREATE INDEX runs_of_flow_in_state ON runs (flow, state, id);
CREATE INDEX runs_of_scripts ON runs (id) WHERE origin = 'script' AND ended_at IS NULL;
CREATE UNIQUE INDEX runs_once ON runs (flow, idempotency_key) WHERE idempotency_key IS NOT NULL;
CREATE INDEX runs_retried ON runs (retry_of) WHERE retry_of IS NOT NULL;
CREATE INDEX runs_of_sweep ON runs (sweep, id) WHERE sweep IS NOT NULL;
CREATE INDEX runs_on_host ON runs (host, id) WHERE host <> '';
CREATE INDEX runs_ended ON runs (ended_at, id) WHERE ended_at IS NOT NULL;
CREATE INDEX runs_called ON runs (parent, id) WHERE parent IS NOT NULL;
CREATE INDEX runs_below ON runs (root, key) WHERE root IS NOT NULL;
CREATE INDEX runs_open_below ON runs (root, id) WHERE ended_at IS NULL AND root IS NOT NULL;

-- The one queue. `lease` and `worker` are set while the job is leased or running, and only then. `devices` is JSON;
-- `blocked` is blocked while the job waits for placed calls alone, unblocked from then until it may go on.
CREATE TABLE jobs (
    id TEXT COLLATE "C" PRIMARY KEY,
    run TEXT NOT NULL REFERENCES runs (id),
    kind TEXT NOT NULL,
    state TEXT NOT NULL,
    flow TEXT NOT NULL,
    entry TEXT NOT NULL,
    args TEXT NOT NULL,
    bundle TEXT NOT NULL,
    ask TEXT NOT NULL,
    settings TEXT NOT NULL,
    age_at DOUBLE PRECISION NOT NULL,
    created_at DOUBLE PRECISION NOT NULL,
    key TEXT NOT NULL,
    name TEXT NOT NULL,
    priority BIGINT NOT NULL,
    not_before DOUBLE PRECISION NOT NULL,
    lease BIGINT,
    worker TEXT,
    attempt BIGINT NOT NULL,
    started_at DOUBLE PRECISION,
    cancelling BIGINT NOT NULL,
    retries_used BIGINT NOT NULL,
    crashes BIGINT NOT NULL,
    handoffs_failed BIGINT NOT NULL,
    parent_job TEXT,
    nested TEXT,
    depth BIGINT NOT NULL DEFAULT 0,
    queued_at DOUBLE PRECISION NOT NULL DEFAULT 0,
    last_worker TEXT,
    devices TEXT NOT NULL DEFAULT '[]',
    blocked TEXT NOT NULL DEFAULT '',
    block BIGINT NOT NULL DEFAULT 0,
    fingerprint TEXT NOT NULL DEFAULT '',
    git TEXT NOT NULL DEFAULT '',
    behind BIGINT,
    leased_at DOUBLE PRECISION NOT NULL DEFAULT 0,
    checkout TEXT NOT NULL DEFAULT ''
);
CREATE INDEX jobs_queued ON jobs (priority DESC, age_at, id) WHERE state = 'queued';
CREATE INDEX jobs_held ON jobs (worker, run, parent_job) WHERE state IN ('leased', 'running');
CREATE INDEX jobs_of_run ON jobs (run, key);
-- A call of a run has one open job, whoever asks for it and however often: its task run's key holds that.
CREATE INDEX jobs_waiting ON jobs (run, parent_job) WHERE state IN ('queued', 'parked') AND kind <> 'run';

-- Attempts that anything was heard of, or that have ended; until then all there is of one is in its job.
-- `whole` is the last number of the engine's spool where one report told all of it, which ended the attempt.
CREATE TABLE attempts (
    lease BIGINT PRIMARY KEY,
    job TEXT NOT NULL REFERENCES jobs (id),
    run TEXT NOT NULL,
    number BIGINT NOT NULL,
    worker TEXT NOT NULL,
    leased_at DOUBLE PRECISION NOT NULL,
    started_at DOUBLE PRECISION,
    ended_at DOUBLE PRECISION,
    outcome TEXT NOT NULL,
    reason TEXT NOT NULL,
    message TEXT NOT NULL,
    host TEXT NOT NULL,
    python TEXT NOT NULL,
    pid BIGINT,
    overlap_possible BIGINT NOT NULL,
    fingerprint TEXT NOT NULL DEFAULT '',
    git TEXT NOT NULL DEFAULT '',
    environment TEXT NOT NULL DEFAULT '',
    whole BIGINT
);
CREATE INDEX attempts_of_job ON attempts (job, number);
CREATE INDEX attempts_of_worker ON attempts (worker, leased_at);

-- The last event number recorded of each spool, if not `whole` has it; written in the transaction that holds the event.
CREATE TABLE recorded (
    job TEXT NOT NULL REFERENCES jobs (id),
    lease BIGINT NOT NULL,
    source TEXT NOT NULL,
    seq BIGINT NOT NULL,
    PRIMARY KEY (job, lease, source)
);

-- `needs` are the keys of calls whose results it took. `nested`, here and below, is the key of the innermost flow
-- inside of the run that the row belongs to; `flow_run` is the run of a call that is a flow itself.
-- `place` is the call's index in a .map(); `seeded` marks an outcome taken over from the run that this one
-- retries. A call that a seeded placed call's engine made has no job yet: `job` is then RUN/KEY of that call.
CREATE TABLE task_runs (
    run TEXT NOT NULL REFERENCES runs (id),
    key TEXT NOT NULL,
    number BIGINT NOT NULL,
    name TEXT NOT NULL,
    state TEXT NOT NULL,
    scope TEXT NOT NULL,
    place BIGINT,
    attempts BIGINT NOT NULL,
    worker TEXT,
    started_at DOUBLE PRECISION,
    ended_at DOUBLE PRECISION,
    kept BIGINT NOT NULL,
    value TEXT,
    error TEXT,
    job TEXT,
    placed TEXT,
    seeded BIGINT NOT NULL DEFAULT 0,
    needs TEXT,
    tags TEXT,
    progress TEXT,
    nested TEXT,
    flow_run TEXT,
    PRIMARY KEY (run, key)
);
CREATE UNIQUE INDEX task_runs_in_order ON task_runs (run, number);
CREATE INDEX task_runs_of_call ON task_runs (job, number) WHERE length(job) > length(run);
CREATE INDEX task_runs_open ON task_runs (run, job) WHERE state IN ('queued', 'running') AND placed IS NULL;
CREATE INDEX task_runs_nested ON task_runs (run, nested, number) WHERE nested IS NOT NULL;

-- One row a batch: `lines` is JSON, a list of [at, text, stream, level, task].
CREATE TABLE logs (
    run TEXT NOT NULL REFERENCES runs (id),
    last_number BIGINT NOT NULL,
    first_number BIGINT NOT NULL,
    attempt BIGINT NOT NULL,
    lines TEXT NOT NULL,
    nested TEXT,
    PRIMARY KEY (run, last_number)
);
CREATE INDEX logs_nested ON logs (run, nested, last_number) WHERE nested IS NOT NULL;

-- One row a batch: `points` is JSON, a list of [at, {series: number}, task].
CREATE TABLE metrics (
    run TEXT NOT NULL REFERENCES runs (id),
    last_number BIGINT NOT NULL,
    first_number BIGINT NOT NULL,
    points TEXT NOT NULL,
    nested TEXT,
    PRIMARY KEY (run, last_number)
);
CREATE INDEX metrics_nested ON metrics (run, nested, last_number) WHERE nested IS NOT NULL;

-- What nodes yield while they run, for those that read along: the newest attempt of each stream, which is open,
-- ended or broken. It is broken too when `job` is not held by `lease` any more.
CREATE TABLE streams (
    id BIGINT GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY,
    run TEXT NOT NULL REFERENCES runs (id),
    key TEXT NOT NULL,
    name TEXT NOT NULL,
    tries INTEGER NOT NULL,
    job TEXT NOT NULL,
    lease BIGINT NOT NULL,
    state TEXT NOT NULL,
    message TEXT NOT NULL,
    last_number BIGINT NOT NULL,
    UNIQUE (run, key, name)
);
CREATE INDEX streams_of_run ON streams (run, id);

-- One row a batch: `items` is JSON, a list of Values.
CREATE TABLE stream_values (
    id BIGINT GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY,
    run TEXT NOT NULL REFERENCES runs (id),
    stream BIGINT NOT NULL REFERENCES streams (id),
    last_number BIGINT NOT NULL,
    first_number BIGINT NOT NULL,
    items TEXT NOT NULL
);
CREATE INDEX stream_values_in_order ON stream_values (stream, last_number);
CREATE INDEX stream_values_of_run ON stream_values (run, id);

CREATE TABLE artifacts (
    id BIGINT GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY,
    run TEXT NOT NULL REFERENCES runs (id),
    name TEXT NOT NULL,
    digest TEXT NOT NULL,
    size BIGINT NOT NULL,
    media_type TEXT NOT NULL,
    created_at DOUBLE PRECISION NOT NULL,
    task TEXT,
    nested TEXT
);
CREATE INDEX artifacts_of_run ON artifacts (run, id);
CREATE INDEX artifacts_of_digest ON artifacts (digest);

-- The blobs that a run's records name: what a worker with a job of the run may read.
CREATE TABLE run_blobs (
    run TEXT COLLATE "C" NOT NULL REFERENCES runs (id),
    digest TEXT COLLATE "C" NOT NULL,
    PRIMARY KEY (run, digest)
);

CREATE TABLE events (
    id BIGINT GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY,
    at DOUBLE PRECISION NOT NULL,
    kind TEXT NOT NULL,
    message TEXT NOT NULL,
    run TEXT,
    worker TEXT,
    details TEXT NOT NULL
);
CREATE INDEX events_of_run ON events (run, id) WHERE run IS NOT NULL;
CREATE INDEX events_of_no_run ON events (at) WHERE run IS NULL;
CREATE INDEX events_of_worker ON events (worker, id) WHERE worker IS NOT NULL;

-- `drained_by` is who ordered a drain, empty for none; `slots` what a person set for this instance;
-- `reported` is JSON: whatever else the hello said.
CREATE TABLE workers (
    name TEXT COLLATE "C" PRIMARY KEY,
    state TEXT NOT NULL,
    labels TEXT NOT NULL,
    parallel BIGINT NOT NULL,
    instance TEXT NOT NULL,
    host TEXT NOT NULL,
    python TEXT NOT NULL,
    version TEXT NOT NULL,
    boot_id TEXT NOT NULL,
    address TEXT NOT NULL,
    attached_at DOUBLE PRECISION,
    last_seen_at DOUBLE PRECISION,
    environment TEXT NOT NULL DEFAULT '',
    environment_at DOUBLE PRECISION,
    checkout TEXT NOT NULL DEFAULT '',
    git TEXT NOT NULL DEFAULT '',
    jti TEXT NOT NULL DEFAULT '',
    protocol BIGINT NOT NULL DEFAULT 0,
    drained_by TEXT NOT NULL DEFAULT '',
    slots BIGINT,
    reported TEXT NOT NULL DEFAULT '{}'
);

CREATE TABLE tokens (
    jti TEXT COLLATE "C" PRIMARY KEY,
    name TEXT NOT NULL,
    role TEXT NOT NULL,
    labels TEXT NOT NULL,
    issued_at DOUBLE PRECISION NOT NULL,
    expires_at DOUBLE PRECISION NOT NULL,
    revoked_at DOUBLE PRECISION,
    last_used_at DOUBLE PRECISION,
    address TEXT NOT NULL DEFAULT ''
);

-- Sign-ins that somebody ended before their time, until that is over: their cookies and tickets are worth nothing.
CREATE TABLE ended_sign_ins (
    id TEXT COLLATE "C" PRIMARY KEY,
    expires_at DOUBLE PRECISION NOT NULL
);

-- `code_hash` is SHA-256 of a code that buys one token; `token_s` says for how long that is valid.
CREATE TABLE invitations (
    id TEXT COLLATE "C" PRIMARY KEY,
    code_hash TEXT NOT NULL UNIQUE,
    name TEXT NOT NULL,
    labels TEXT NOT NULL,
    token_s DOUBLE PRECISION NOT NULL,
    issued_at DOUBLE PRECISION NOT NULL,
    expires_at DOUBLE PRECISION NOT NULL,
    used_at DOUBLE PRECISION,
    jti TEXT,
    address TEXT NOT NULL DEFAULT ''
);

-- Machines that provisioners were asked for, recorded before anything is submitted; `jti` is its worker's token.
CREATE TABLE machines (
    name TEXT COLLATE "C" PRIMARY KEY,
    provisioner TEXT NOT NULL,
    profile TEXT NOT NULL,
    state TEXT NOT NULL,
    labels TEXT NOT NULL,
    jti TEXT NOT NULL,
    expires_at DOUBLE PRECISION NOT NULL,
    asked_at DOUBLE PRECISION NOT NULL,
    since DOUBLE PRECISION NOT NULL,
    waits_since DOUBLE PRECISION NOT NULL,
    reason TEXT NOT NULL DEFAULT '',
    external TEXT NOT NULL DEFAULT '',
    tries BIGINT NOT NULL DEFAULT 0,
    attached_at DOUBLE PRECISION,
    ended_at DOUBLE PRECISION,
    profile_digest TEXT NOT NULL DEFAULT ''
);
CREATE INDEX machines_by_end ON machines (ended_at);

-- Every change that somebody asked for, and every secret that a job read.
CREATE TABLE audit (
    id BIGINT GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY,
    at DOUBLE PRECISION NOT NULL,
    role TEXT NOT NULL,
    actor TEXT NOT NULL,
    jti TEXT NOT NULL,
    address TEXT NOT NULL,
    action TEXT NOT NULL,
    subject TEXT NOT NULL,
    outcome TEXT NOT NULL,
    status INTEGER NOT NULL,
    details TEXT NOT NULL
);
CREATE INDEX audit_of_actor ON audit (actor, id);
CREATE INDEX audit_of_action ON audit (action, id);
CREATE INDEX audit_by_age ON audit (at);

-- `sealed` is base64 of nonce and AES-256-GCM ciphertext; `sealed_with` names the key.
CREATE TABLE secrets (
    name TEXT COLLATE "C" PRIMARY KEY,
    sealed TEXT NOT NULL,
    sealed_with TEXT NOT NULL,
    created_at DOUBLE PRECISION NOT NULL,
    updated_at DOUBLE PRECISION NOT NULL,
    updated_by TEXT NOT NULL,
    last_read_at DOUBLE PRECISION
);

-- `value` is JSON text.
CREATE TABLE variables (
    name TEXT COLLATE "C" PRIMARY KEY,
    value TEXT NOT NULL,
    updated_at DOUBLE PRECISION NOT NULL,
    updated_by TEXT NOT NULL
);

-- Named sizes; an amount that a flavor says nothing of is NULL.
CREATE TABLE flavors (
    name TEXT COLLATE "C" PRIMARY KEY,
    cpus BIGINT,
    gpus BIGINT,
    ram_mb BIGINT,
    updated_at DOUBLE PRECISION NOT NULL,
    updated_by TEXT NOT NULL
);

-- The versions of declared flows, each with its document.
CREATE TABLE versions (
    flow TEXT COLLATE "C" NOT NULL,
    number BIGINT NOT NULL,
    etag TEXT NOT NULL,
    document TEXT NOT NULL,
    bundle TEXT NOT NULL,
    fingerprint TEXT NOT NULL,
    created_at DOUBLE PRECISION NOT NULL,
    created_by TEXT NOT NULL,
    PRIMARY KEY (flow, number)
);

-- The last record imported of each script's journal.
CREATE TABLE journals (
    run TEXT PRIMARY KEY REFERENCES runs (id),
    seq BIGINT NOT NULL
);

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
CREATE INDEX fires_by_age ON fires (at);

-- Flows that were deleted while their runs, up to `last_run`, are still being removed; those are not shown.
CREATE TABLE deletions (
    flow TEXT PRIMARY KEY,
    last_run TEXT COLLATE "C" NOT NULL,
    asked_at DOUBLE PRECISION NOT NULL
);

-- One row: the server that owns the database. `epoch` rises with every new owner and is looked at by every
-- transaction that writes, which leaves its number in `written`.
CREATE TABLE owner (
    id BIGINT PRIMARY KEY CHECK (id = 1),
    epoch BIGINT NOT NULL,
    host TEXT NOT NULL,
    pid BIGINT NOT NULL,
    since DOUBLE PRECISION NOT NULL,
    written BIGINT NOT NULL DEFAULT 0
);

-- Which migrations have run.
CREATE TABLE schema_migrations (
    number BIGINT PRIMARY KEY,
    name TEXT NOT NULL
);

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
