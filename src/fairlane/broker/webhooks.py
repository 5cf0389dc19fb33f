"""Webhooks in force, outcomes of their requests, and sample requests."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import msgspec

from fairlane.broker.paging import page_of
from fairlane.broker.resource import Resource
from fairlane.errors import NotAvailable, NotFound
from fairlane.model.moment import Moment, moment_or_none
from fairlane.runtime.clock import wall_clock
from fairlane.spec import ir
from fairlane.spec.sample_webhook import sample_body
from fairlane.webhooks.samples import sample_of, sender_of
from fairlane.wire.webhooks import WebhookList, WebhookListQuery, WebhookRequest, WebhookSummary

if TYPE_CHECKING:
    from fairlane.broker.engine import TenantScope
    from fairlane.broker.webhook_receiver import WebhookReceiver

_RECENT: Final = 20
_LATELY: Final = 300_000_000
_TAKEN: Final = frozenset(
    {"queued", "processed", "ran", "ignored", "duplicate", "challenge", "replayed", "dead_letter", "cancelled"}
)
_UNSIGNED: Final[dict[str, str]] = {
    "missing": "the header of the signature is missing",
    "malformed": "the signature or the signed content cannot be read",
    "stale": "the signature is valid, but more than five minutes off",
    "mismatch": "the signature does not match: the secret differs, or the body was changed on its way",
}
_WHY: Final[dict[str, str]] = {
    **_UNSIGNED,
    "unreadable": "the body is not the JSON, form or event that the webhook accepts, or its content-type names another",
    "too_large": "the body is larger than the webhook accepts",
    "unverified": "it came to --hooks-listen, which accepts only webhooks with a signature",
    "limited": "too many requests at once, or too many without a valid signature",
    "misfit": "the payload does not fit the type of its queue",
    "full": "the queue is full",
    "unavailable": "the message could not be stored",
    "unready": "the secret of the webhook is missing here",
}


class _WebhookLog(msgspec.Struct):
    """The log of one webhook: numbers of requests by outcome, and the latest requests, newest first."""

    outcomes: dict[str, int] = {}
    recent: list[WebhookRequest] = []
    delivered_at: int | None = None
    refused_at: int | None = None

    def add(self, more: _WebhookLog) -> None:
        for outcome, count in more.outcomes.items():
            self.outcomes[outcome] = self.outcomes.get(outcome, 0) + count
        self.recent = sorted([*more.recent, *self.recent], key=lambda one: one.at, reverse=True)[:_RECENT]
        self.delivered_at = max(more.delivered_at or 0, self.delivered_at or 0) or None
        self.refused_at = max(more.refused_at or 0, self.refused_at or 0) or None


class Webhooks(Resource):
    def __init__(self, scope: TenantScope, receiver: WebhookReceiver) -> None:
        super().__init__(scope)
        self.receive = receiver.receive
        self._logs: dict[str, _WebhookLog] = {}
        self._question = f"hooks {scope.tenant}"

    def note(self, name: str, outcome: str, status: int) -> None:
        """Record the outcome of a request to a webhook in force."""
        now, taken = wall_clock(), outcome in _TAKEN
        request = WebhookRequest(at=Moment(now), outcome=outcome, status=status, why=_WHY.get(outcome))
        self._engine.peer_stats.answers[self._question] = lambda: self._logs
        log = self._logs.setdefault(name, _WebhookLog())
        log.add(_WebhookLog({outcome: 1}, [request], now if taken else None, None if taken else now))

    async def all(self) -> list[WebhookSummary]:
        """Return the webhooks in force, by name."""
        logs: dict[str, _WebhookLog] = {}
        for one in await self._engine.peer_stats.query(dict[str, _WebhookLog], self._question):
            for name, log in one.items():
                logs.setdefault(name, _WebhookLog()).add(log)
        return [
            self._shown(name, logs.get(name) or _WebhookLog()) for name in sorted(self._scope.compiled_specs.webhooks)
        ]

    async def page(self, query: WebhookListQuery, may_see: Callable[[WebhookSummary], bool]) -> WebhookList:
        """Return a page of the visible webhooks, and totals of all visible ones."""
        webhooks = [one for one in await self.all() if may_see(one)]
        shown, total = page_of(
            webhooks,
            query,
            text=lambda one: f"{one.name} {one.queue or ''}",
            up={"name": lambda one: one.name},
            down={"refused": lambda one: one.refused, "delivered": lambda one: one.delivered},
        )
        delivered, refused = sum(one.delivered for one in webhooks), sum(one.refused for one in webhooks)
        return WebhookList(hooks=shown, total=total, delivered=delivered, refused=refused)

    def _shown(self, name: str, log: _WebhookLog) -> WebhookSummary:
        spec, since = self._scope.compiled_specs.declaring(name).webhooks[name], wall_clock() - _LATELY
        return WebhookSummary(
            name=name,
            queue=spec.queue,
            command=spec.command.command if spec.command else None,
            scheme=spec.verify.scheme if spec.verify else None,
            available=self._scope.compiled_specs.webhooks[name] is not None,
            delivered=sum(count for outcome, count in log.outcomes.items() if outcome in _TAKEN),
            refused=sum(count for outcome, count in log.outcomes.items() if outcome not in _TAKEN),
            refused_lately=sum(one.at > since and one.outcome in _UNSIGNED for one in log.recent),
            last_delivered_at=moment_or_none(log.delivered_at),
            last_refused_at=moment_or_none(log.refused_at),
            outcomes=log.outcomes,
            recent=log.recent,
        )

    def sample(self, name: str) -> tuple[dict[bytes, bytes], bytes]:
        """Return headers and body of a signed sample request.

        Raises NotFound if there is no such webhook, NotAvailable if its secret is missing here.
        """
        if name not in self._scope.compiled_specs.webhooks:
            raise NotFound(f"there is no webhook {name!r:.200}")
        webhook = self._scope.compiled_specs.webhooks[name]
        if webhook is None:
            raise NotAvailable("the secret of this webhook is missing here, so nothing can be signed")
        spec, app = webhook.spec, self._scope.compiled_specs.declaring(name)
        given = sample_of(sender_of(spec))
        body = msgspec.json.encode(sample_body(app, spec, given.body))
        id = str(uuid.uuid4())
        headers = {b"content-type": b"application/json"}
        headers |= {name.lower().encode(): value.encode() for name, value in given.headers.items()}
        if isinstance(spec.idempotency, ir.HeaderKey):
            headers[spec.idempotency.header.lower().encode()] = id.encode()
        return {**webhook.signed(body, id, wall_clock() / 1e6), **headers}, body
