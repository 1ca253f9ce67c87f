ALTER TABLE tokens ADD COLUMN address TEXT NOT NULL DEFAULT '';

CREATE TABLE audit (
    id INTEGER PRIMARY KEY,
    at REAL NOT NULL,
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

CREATE TABLE secrets (
    name TEXT PRIMARY KEY,
    sealed TEXT NOT NULL,
    sealed_with TEXT NOT NULL,
    created_at REAL NOT NULL,
    updated_at REAL NOT NULL,
    updated_by TEXT NOT NULL,
    last_read_at REAL
);

CREATE TABLE variables (
    name TEXT PRIMARY KEY,
    value TEXT NOT NULL,
    updated_at REAL NOT NULL,
    updated_by TEXT NOT NULL
);
