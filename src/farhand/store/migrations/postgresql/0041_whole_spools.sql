-- The last number of a spool that told all of an attempt at once, kept with the attempt whose end it is.

ALTER TABLE attempts ADD COLUMN whole BIGINT;
