-- An index by which the open runs below a run are found, however many have ended there.

CREATE INDEX runs_open_below ON runs (root, id) WHERE ended_at IS NULL AND root IS NOT NULL;
