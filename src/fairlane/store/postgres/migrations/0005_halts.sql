-- Set while an operator keeps them from being read.
ALTER TABLE fairlane.queues ADD paused_at timestamptz;
ALTER TABLE fairlane.groups ADD paused_at timestamptz;
ALTER TABLE fairlane.partitions ADD paused_at timestamptz;
-- The lane was set aside, by an operator or with a message whose attempts are used up, until it is resumed.
ALTER TABLE fairlane.cursors ADD parked boolean NOT NULL DEFAULT false;
