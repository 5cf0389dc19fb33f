-- Messages dropped because they were too old; those that were dead-lettered for it count as dead.
ALTER TABLE fairlane.cursors ADD expired bigint NOT NULL DEFAULT 0;
