-- Whether a group gets of each partition only the newest message.
alter table groups add column conflation integer not null default 0;
