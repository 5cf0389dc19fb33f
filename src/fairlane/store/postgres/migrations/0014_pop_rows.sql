-- These functions answer with other columns than before, which a replacement may not do.
DROP FUNCTION IF EXISTS fairlane.pop(int, bigint, bigint, uuid[], int[], int[], boolean, int, bigint, timestamptz, bigint, boolean,
                                     timestamptz);
DROP FUNCTION IF EXISTS fairlane.claim(int, bigint, bigint, uuid[], int[], int[], boolean, int, bigint, timestamptz, bigint, boolean,
                                       timestamptz, jsonb);
