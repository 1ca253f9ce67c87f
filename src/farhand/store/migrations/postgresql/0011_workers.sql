-- Invitations to be a worker; what people told a worker; what its hello said besides; who ran what when.

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

ALTER TABLE workers ADD COLUMN jti TEXT NOT NULL DEFAULT '';
ALTER TABLE workers ADD COLUMN protocol BIGINT NOT NULL DEFAULT 0;
ALTER TABLE workers ADD COLUMN drained_by TEXT NOT NULL DEFAULT '';
ALTER TABLE workers ADD COLUMN slots BIGINT;
ALTER TABLE workers ADD COLUMN reported TEXT NOT NULL DEFAULT '{}';

CREATE INDEX events_of_worker ON events (worker, id) WHERE worker IS NOT NULL;
CREATE INDEX attempts_of_worker ON attempts (worker, leased_at);
