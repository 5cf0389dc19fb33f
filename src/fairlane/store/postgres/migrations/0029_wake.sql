-- The function of 5 arguments takes its place.
DROP FUNCTION IF EXISTS fairlane.wake(int, bigint, timestamptz);
