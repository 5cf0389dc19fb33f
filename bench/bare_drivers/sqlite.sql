CREATE TABLE lanes (id INTEGER PRIMARY KEY, head INTEGER NOT NULL DEFAULT 0);

CREATE TABLE messages (
    lane INTEGER NOT NULL,
    position INTEGER NOT NULL,
    transaction_id BLOB NOT NULL,
    payload BLOB NOT NULL,
    created_at INTEGER NOT NULL,
    PRIMARY KEY (lane, position),
    UNIQUE (lane, transaction_id)
);

CREATE TABLE jobs (id INTEGER PRIMARY KEY, status INTEGER NOT NULL DEFAULT 0, payload BLOB NOT NULL);

-- Finds the next waiting rows.
CREATE INDEX jobs_waiting ON jobs (id) WHERE status = 0;
