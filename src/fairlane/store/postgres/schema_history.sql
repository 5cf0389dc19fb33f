-- The history: samples of a queue, a group or everything (`subject`) by minute since 1970, one row for each process.
CREATE TABLE fairlane.history_minutes (
    subject bigint NOT NULL, minute int NOT NULL, writer bigint NOT NULL,
    data bytea NOT NULL, PRIMARY KEY (subject, minute, writer)
);

-- The samples of past hours, merged and compressed.
CREATE TABLE fairlane.history_hours (
    subject bigint NOT NULL, hour int NOT NULL, data bytea NOT NULL, PRIMARY KEY (subject, hour)
);
CREATE INDEX history_hours_hour ON fairlane.history_hours (hour);  -- forget: the oldest hours.
