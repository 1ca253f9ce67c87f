-- What of its profile a machine was submitted with; empty for one that was before this was kept.

ALTER TABLE machines ADD COLUMN profile_digest TEXT NOT NULL DEFAULT '';
