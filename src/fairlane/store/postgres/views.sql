-- Views for people. They are made anew when this text changes.
DROP VIEW IF EXISTS fairlane.messages;

-- Every retained message that was not deleted, one row each.
CREATE VIEW fairlane.messages AS
SELECT t.name AS tenant, q.name AS queue, p.name AS partition, s.first_pos + e.ord - 1 AS position,
       m.doc ->> 'id' AS id, m.doc ->> 'transactionId' AS transaction_id, m.doc ->> 'traceId' AS trace_id,
       m.doc ->> 'type' AS type, m.doc -> 'headers' AS headers, s.created_at, m.doc -> 'data' AS data
FROM fairlane.segments s
JOIN fairlane.partitions p ON p.shard = s.shard AND p.id = s.partition_id
JOIN fairlane.queues q ON q.id = p.queue_id
JOIN fairlane.tenants t ON t.id = q.tenant_id
CROSS JOIN LATERAL unnest(s.ends) WITH ORDINALITY AS e(upto, ord)
CROSS JOIN LATERAL (
    SELECT (convert_from(substring(s.body FROM coalesce(s.ends[e.ord::int - 1], 0) + 1
                                   FOR e.upto - coalesce(s.ends[e.ord::int - 1], 0)), 'UTF8') || '}')::json AS doc
) m
WHERE s.first_pos + e.ord > p.start
  AND NOT EXISTS (SELECT 1 FROM fairlane.skips x WHERE x.shard = s.shard AND x.partition_id = s.partition_id
                  AND x.position = s.first_pos + e.ord - 1 AND x.group_id = 0);
