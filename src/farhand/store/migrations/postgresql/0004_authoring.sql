-- Tags of flows, retry delays of more than one number, and the index that max_concurrent counts by.

ALTER TABLE flows ADD COLUMN tags TEXT NOT NULL DEFAULT '[]';

UPDATE flows SET settings = jsonb_set(
    settings::jsonb,
    '{retry_delay}',
    jsonb_build_object('seconds', jsonb_build_array(settings::jsonb -> 'retry_delay_s'))
)::text WHERE settings::jsonb ? 'retry_delay_s';

UPDATE jobs SET settings = jsonb_set(
    settings::jsonb,
    '{retry_delay}',
    jsonb_build_object('seconds', jsonb_build_array(settings::jsonb -> 'retry_delay_s'))
)::text WHERE settings::jsonb ? 'retry_delay_s';

CREATE INDEX jobs_live_of_flow ON jobs (flow) WHERE kind = 'run' AND state IN ('leased', 'running');
