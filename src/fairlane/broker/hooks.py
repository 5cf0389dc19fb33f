"""Webhooks: those in force, what became of requests to them, and samples to try one."""

from __future__ import annotations

import uuid
from builtins import list as List  # there is a verb of that name
from collections import Counter, deque
from typing import Final

import msgspec

from fairlane.broker.compiled_specs import CompiledSpecs
from fairlane.errors import NotAvailable, NotFound
from fairlane.hooks.samples import sample_of
from fairlane.model.moment import Moment, moment_or_none
from fairlane.runtime.clock import wall_clock
from fairlane.spec import ir
from fairlane.spec.sample import sample_body
from fairlane.wire.hooks import Hook, HookList, HookRequest

_RECENT: Final = 20
_LATELY: Final = 300_000_000
_TAKEN: Final = frozenset({"queued", "processed", "ran", "ignored", "duplicate", "challenge"})
_UNSIGNED: Final[dict[str, str]] = {
    "missing": "the header of the signature is missing",
    "malformed": "the signature, or what it is over, cannot be read",
    "stale": "the signature is good, and older or newer than five minutes",
    "mismatch": "the signature is not that of the secret: another secret, or a body that was changed on its way",
}
_WHY: Final[dict[str, str]] = {
    **_UNSIGNED,
    "too_large": "the body has more bytes than the webhook takes",
    "limited": "too many requests at once, or too many without a good signature",
    "misfit": "the payload does not fit the type of its queue",
    "full": "the queue is full",
    "unavailable": "the message could not be stored",
    "unready": "the secret of the webhook is missing here",
}


class _Log:
    """The log of one webhook."""

    def __init__(self) -> None:
        self.outcomes: Counter[str] = Counter()
        self.recent: deque[HookRequest] = deque(maxlen=_RECENT)
        self.delivered_at: int | None = None
        self.refused_at: int | None = None


class Hooks:
    def __init__(self, compiled_specs: CompiledSpecs) -> None:
        self._specs = compiled_specs
        self._logs: dict[str, _Log] = {}

    def note(self, name: str, outcome: str, status: int) -> None:
        """A request to a webhook in force was answered so."""
        log, now = self._logs.setdefault(name, _Log()), wall_clock()
        log.outcomes[outcome] += 1
        log.recent.appendleft(HookRequest(at=Moment(now), outcome=outcome, status=status, why=_WHY.get(outcome)))
        if outcome in _TAKEN:
            log.delivered_at = now
        else:
            log.refused_at = now

    def list(self) -> HookList:
        """Those in force, by name."""
        return HookList(hooks=[self._shown(name) for name in sorted(self._specs.hooks)])

    def _shown(self, name: str) -> Hook:
        log, spec = self._logs.get(name) or _Log(), self._specs.declaring(name).webhooks[name]
        since = wall_clock() - _LATELY
        return Hook(
            name=name,
            queue=spec.queue,
            command=spec.command.command if spec.command else None,
            scheme=spec.verify.scheme if spec.verify else None,
            available=self._specs.hooks[name] is not None,
            delivered=sum(count for outcome, count in log.outcomes.items() if outcome in _TAKEN),
            refused=sum(count for outcome, count in log.outcomes.items() if outcome not in _TAKEN),
            refused_lately=sum(one.at > since and one.outcome in _UNSIGNED for one in log.recent),
            last_delivered_at=moment_or_none(log.delivered_at),
            last_refused_at=moment_or_none(log.refused_at),
            outcomes=dict(log.outcomes),
            recent=List(log.recent),
        )

    def sample(self, name: str) -> tuple[dict[bytes, bytes], bytes]:
        """Headers and body as the sender of a webhook could send them, signed. NotFound if there is none, NotAvailable
        if its secret is missing here."""
        if name not in self._specs.hooks:
            raise NotFound(f"there is no webhook {name!r:.200}")
        hook = self._specs.hooks[name]
        if hook is None:
            raise NotAvailable("the secret of this webhook is missing here, so that nothing can be signed")
        spec, app = hook.spec, self._specs.declaring(name)
        given = sample_of(spec.verify.scheme if spec.verify else "")
        body = msgspec.json.encode(sample_body(app, spec, given.body))
        id = str(uuid.uuid4())
        headers = {name.lower().encode(): value.encode() for name, value in given.headers.items()}
        headers[b"content-type"] = b"application/json"
        if isinstance(spec.idempotency, ir.HeaderKey):
            headers[spec.idempotency.header.lower().encode()] = id.encode()
        return {**hook.signed(body, id, wall_clock() / 1e6), **headers}, body
