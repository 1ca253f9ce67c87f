-- The versions of declared flows, each with its document.

CREATE TABLE versions (
    flow TEXT NOT NULL,
    number INTEGER NOT NULL,
    etag TEXT NOT NULL,
    document TEXT NOT NULL,
    bundle TEXT NOT NULL,
    fingerprint TEXT NOT NULL,
    created_at REAL NOT NULL,
    created_by TEXT NOT NULL,
    PRIMARY KEY (flow, number)
);
