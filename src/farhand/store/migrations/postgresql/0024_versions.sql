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
