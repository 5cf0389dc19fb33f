"""Samples of webhooks, as senders send them, shortened: to try a webhook without them."""

from __future__ import annotations

from typing import Any, NamedTuple


class Sample(NamedTuple):
    body: dict[str, Any]
    headers: dict[str, str]
    """Besides those of the signature."""


_AT = "2026-01-31T12:00:00Z"
_GENERIC = Sample({"type": "sample", "id": "sample-1", "created_at": _AT}, {})

SAMPLES: dict[str, Sample] = {
    "github": Sample(
        {
            "ref": "refs/heads/main",
            "after": "6113728f27ae82c7b1a177c8d03f9e96e0adf246",
            "repository": {"id": 1296269, "name": "hello-world", "full_name": "octocat/hello-world"},
            "pusher": {"name": "octocat"},
            "commits": [],
        },
        {"X-GitHub-Event": "push", "X-GitHub-Hook-ID": "1"},
    ),
    "stripe": Sample(
        {
            "id": "evt_sample",
            "object": "event",
            "type": "payment_intent.succeeded",
            "created": 1769860800,
            "data": {"object": {"id": "pi_sample", "amount": 2000, "currency": "eur", "status": "succeeded"}},
        },
        {},
    ),
    "slack": Sample(
        {
            "type": "event_callback",
            "event_id": "Ev0SAMPLE",
            "event_time": 1769860800,
            "team_id": "T0SAMPLE",
            "event": {"type": "message", "channel": "C0SAMPLE", "user": "U0SAMPLE", "text": "hello"},
        },
        {},
    ),
    "pagerduty": Sample(
        {
            "event": {
                "id": "01SAMPLE",
                "event_type": "incident.triggered",
                "resource_type": "incident",
                "occurred_at": _AT,
                "agent": {
                    "id": "PUSER",
                    "type": "user_reference",
                    "summary": "A user",
                    "self": "https://api.pagerduty.com/users/PUSER",
                    "html_url": "https://acme.pagerduty.com/users/PUSER",
                },
                "client": None,
                "data": {
                    "id": "PSAMPLE",
                    "type": "incident",
                    "self": "https://api.pagerduty.com/incidents/PSAMPLE",
                    "html_url": "https://acme.pagerduty.com/incidents/PSAMPLE",
                    "number": 2,
                    "status": "triggered",
                    "incident_key": "d3640fbd41094207a1c11e58e46b1662",
                    "created_at": _AT,
                    "title": "The database is down",
                    "service": {"id": "PSERVICE", "type": "service_reference", "summary": "Shop"},
                    "assignees": [],
                    "escalation_policy": {"id": "PPOLICY", "type": "escalation_policy_reference", "summary": "Default"},
                    "teams": [],
                    "priority": None,
                    "urgency": "high",
                    "conference_bridge": None,
                    "resolve_reason": None,
                },
            },
        },
        {},
    ),
    "shopify": Sample(
        {"id": 820982911946154508, "name": "#9999", "currency": "EUR", "total_price": "20.00", "created_at": _AT},
        {"X-Shopify-Topic": "orders/create", "X-Shopify-Shop-Domain": "sample.myshopify.com"},
    ),
    "standard_webhooks": Sample({"type": "sample.created", "timestamp": _AT, "data": {"id": "sample-1"}}, {}),
}


def sample_of(preset: str) -> Sample:
    """Of a sender that is known, or else one that could be anybody's."""
    return SAMPLES.get(preset, _GENERIC)
