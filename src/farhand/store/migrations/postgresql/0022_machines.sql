-- Machines that provisioners were asked for, recorded before anything is submitted.

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
    ended_at DOUBLE PRECISION
);

CREATE INDEX machines_by_end ON machines (ended_at);
