-- Acks name what they finish: the function of 21 arguments takes the place of this one.
DROP FUNCTION IF EXISTS fairlane.ack(int, bigint[], bigint[], boolean[], uuid[], bigint[], bigint[], boolean[], bigint[], text[], int[],
                                     bigint[], text[], int[], bigint[], bytea[], timestamptz);
