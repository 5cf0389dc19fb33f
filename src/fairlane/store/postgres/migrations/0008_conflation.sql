-- Whether a group gets of each partition only the newest message.
ALTER TABLE fairlane.groups ADD COLUMN conflation boolean NOT NULL DEFAULT false;
