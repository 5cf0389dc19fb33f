-- The history: samples of a queue, a group or everything (`subject`) by minute since 1970, one row for each process.
create table history_minutes (
    subject integer not null, minute integer not null, writer integer not null,
    data blob not null, primary key (subject, minute, writer)
) without rowid, strict;

-- The samples of past hours, merged and compressed.
create table history_hours (
    subject integer not null, hour integer not null, data blob not null, primary key (subject, hour)
) strict;
create index history_hours_hour on history_hours (hour);  -- forget: the oldest hours.
