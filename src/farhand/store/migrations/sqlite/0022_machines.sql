-- Machines that provisioners were asked for, recorded before anything is submitted.

CREATE TABLE machines (
    name TEXT PRIMARY KEY,
    provisioner TEXT NOT NULL,
    profile TEXT NOT NULL,
    state TEXT NOT NULL,
    labels TEXT NOT NULL,
    jti TEXT NOT NULL,
    expires_at REAL NOT NULL,
    asked_at REAL NOT NULL,
    since REAL NOT NULL,
    waits_since REAL NOT NULL,
    reason TEXT NOT NULL DEFAULT '',
    external TEXT NOT NULL DEFAULT '',
    tries INTEGER NOT NULL DEFAULT 0,
    attached_at REAL,
    ended_at REAL
);

CREATE INDEX machines_by_end ON machines (ended_at);
