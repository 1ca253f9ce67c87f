-- What nodes yield while they run, for those that read along: the newest attempt of each stream.

CREATE TABLE streams (
    id INTEGER PRIMARY KEY,
    run TEXT NOT NULL REFERENCES runs (id),
    key TEXT NOT NULL,
    name TEXT NOT NULL,
    tries INTEGER NOT NULL,
    job TEXT NOT NULL,
    lease INTEGER NOT NULL,
    state TEXT NOT NULL,
    message TEXT NOT NULL,
    last_number INTEGER NOT NULL,
    UNIQUE (run, key, name)
);
CREATE INDEX streams_of_run ON streams (run, id);

CREATE TABLE stream_values (
    id INTEGER PRIMARY KEY,
    run TEXT NOT NULL REFERENCES runs (id),
    stream INTEGER NOT NULL REFERENCES streams (id),
    last_number INTEGER NOT NULL,
    first_number INTEGER NOT NULL,
    items TEXT NOT NULL
);
CREATE INDEX stream_values_in_order ON stream_values (stream, last_number);
CREATE INDEX stream_values_of_run ON stream_values (run, id);
