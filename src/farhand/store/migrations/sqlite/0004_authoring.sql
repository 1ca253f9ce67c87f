-- Tags of flows, retry delays of more than one number, and the index that max_concurrent counts by.

ALTER TABLE flows ADD COLUMN tags TEXT NOT NULL DEFAULT '[]';

UPDATE flows SET settings = json_set(
    settings, '$.retry_delay', json_object('seconds', json_array(json_extract(settings, '$.retry_delay_s')))
) WHERE json_type(settings, '$.retry_delay_s') IS NOT NULL;

UPDATE jobs SET settings = json_set(
    settings, '$.retry_delay', json_object('seconds', json_array(json_extract(settings, '$.retry_delay_s')))
) WHERE json_type(settings, '$.retry_delay_s') IS NOT NULL;

CREATE INDEX jobs_live_of_flow ON jobs (flow) WHERE kind = 'run' AND state IN ('leased', 'running');
