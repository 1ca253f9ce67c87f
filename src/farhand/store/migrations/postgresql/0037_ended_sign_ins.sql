-- Sign-ins that somebody ended before their time, until that is over: their cookies and tickets are worth nothing.
CREATE TABLE ended_sign_ins (
    id TEXT COLLATE "C" PRIMARY KEY,
    expires_at DOUBLE PRECISION NOT NULL
);
