-- The id of a new queue, group or partition, from the sequence of its table. Cells on Citus install another function, because each
-- node counts for itself there.
CREATE OR REPLACE FUNCTION fairlane.new_id(p_number bigint) RETURNS bigint LANGUAGE sql IMMUTABLE AS $$
    SELECT p_number;
$$;
