-- Which code a job is of, and on what it ran: fingerprint, git state, environment.

ALTER TABLE flows ADD COLUMN git TEXT NOT NULL DEFAULT '';

ALTER TABLE jobs ADD COLUMN fingerprint TEXT NOT NULL DEFAULT '';
ALTER TABLE jobs ADD COLUMN git TEXT NOT NULL DEFAULT '';

ALTER TABLE attempts ADD COLUMN fingerprint TEXT NOT NULL DEFAULT '';
ALTER TABLE attempts ADD COLUMN git TEXT NOT NULL DEFAULT '';
ALTER TABLE attempts ADD COLUMN environment TEXT NOT NULL DEFAULT '';

ALTER TABLE workers ADD COLUMN environment TEXT NOT NULL DEFAULT '';
ALTER TABLE workers ADD COLUMN environment_at REAL;
ALTER TABLE workers ADD COLUMN checkout TEXT NOT NULL DEFAULT '';
ALTER TABLE workers ADD COLUMN git TEXT NOT NULL DEFAULT '';

UPDATE jobs SET fingerprint = (SELECT fingerprint FROM runs WHERE runs.id = jobs.run) WHERE state <> 'ended';
