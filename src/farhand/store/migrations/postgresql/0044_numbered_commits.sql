-- Each transaction that writes leaves its number here, by which one whose COMMIT went unanswered is looked up.
-- PostgreSQL's own number of it may be another's after a crash.

ALTER TABLE owner ADD COLUMN written BIGINT NOT NULL DEFAULT 0;
