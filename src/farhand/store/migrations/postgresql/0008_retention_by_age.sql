-- Indexes by which old fires and old entries of the audit log are found.

CREATE INDEX fires_by_age ON fires (at);
CREATE INDEX audit_by_age ON audit (at);
