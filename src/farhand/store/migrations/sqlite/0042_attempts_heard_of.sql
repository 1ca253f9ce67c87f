-- An attempt that nothing was heard of yet is all in its job, and gets a row of its own with the first report.

ALTER TABLE jobs ADD COLUMN leased_at REAL NOT NULL DEFAULT 0;
ALTER TABLE jobs ADD COLUMN checkout TEXT NOT NULL DEFAULT '';
