"""The scopes of Queen's routes, in the form of tests/http/test_route_scopes.py."""

from __future__ import annotations

WIDE = {
    "browse": """
        GET /api/v1/status/queues/{queue}/messages
    """,
    "status": """
        GET /api/v1/status
        GET /api/v1/status/analytics
        GET /api/v1/status/queues/{queue}
        GET /api/v1/system/maintenance
        GET /api/v1/system/maintenance/pop
        GET /api/v1/system/shared-state
        GET /internal/api/inter-instance/stats
        GET /internal/api/shared-state/stats
        GET /api/v1/analytics/system-metrics
        GET /api/v1/analytics/worker-metrics
        GET /api/v1/analytics/postgres-stats
    """,
    "system": """
        POST /api/v1/system/maintenance
        POST /api/v1/system/maintenance/pop
        POST /internal/api/notify
    """,
}
EACH = {
    "browse": """
        GET /api/v1/traces/names
        GET /api/v1/traces/by-name/{traceName}
        GET /api/v1/traces/{partitionId}/{transactionId}
    """,
    "pop": """
        POST /api/v1/traces
        POST /streams/v1/queries
        POST /streams/v1/state/get
        POST /streams/v1/cycle
    """,
    "status": """
        GET /api/v1/analytics/queue-lag
        GET /api/v1/analytics/queue-ops
        GET /api/v1/analytics/queue-parked-replicas
        GET /api/v1/analytics/retention
        GET /api/v1/status/queues
        POST /api/v1/stats/refresh
    """,
}
OPERATOR = """
    GET /api/v1/status
    GET /api/v1/status/analytics
    POST /api/v1/system/maintenance
    POST /api/v1/system/maintenance/pop
    GET /api/v1/analytics/system-metrics
    GET /api/v1/analytics/worker-metrics
    GET /api/v1/analytics/postgres-stats
"""
