-- The function that takes many queues takes its place.
DROP FUNCTION IF EXISTS fairlane.born(int, bigint, text[], timestamptz);
