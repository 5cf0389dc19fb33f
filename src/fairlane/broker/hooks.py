"""Webhooks: those in force, what became of requests to them, and samples to try one."""

from __future__ import annotations

import uuid
from builtins import list as List  # there is a verb of that name
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import msgspec

from fairlane.broker.paging import page_of
from fairlane.broker.part import Part
from fairlane.errors import NotAvailable, NotFound
from fairlane.hooks.samples import sample_of, sender_of
from fairlane.model.moment import Moment, moment_or_none
from fairlane.runtime.clock import wall_clock
from fairlane.spec import ir
from fairlane.spec.sample import sample_body
from fairlane.wire.hooks import Hook, HookList, HookListQuery, HookRequest

if TYPE_CHECKING:
    from fairlane.broker.parts import Parts

_RECENT: Final = 20
_LATELY: Final = 300_000_000
_TAKEN: Final = frozenset(
    {"queued", "processed", "ran", "ignored", "duplicate", "challenge", "replayed", "dead_letter"}
)
_UNSIGNED: Final[dict[str, str]] = {
    "missing": "the header of the signature is missing",
    "malformed": "the signature, or what it is over, cannot be read",
    "stale": "the signature is good, and older or newer than five minutes",
    "mismatch": "the signature is not that of the secret: another secret, or a body that was changed on its way",
}
_WHY: Final[dict[str, str]] = {
    **_UNSIGNED,
    "too_large": "the body has more bytes than the webhook takes",
    "unverified": "it came to --hooks-listen, where only webhooks with a signature are taken",
    "limited": "too many requests at once, or too many without a good signature",
    "misfit": "the payload does not fit the type of its queue",
    "full": "the queue is full",
    "unavailable": "the message could not be stored",
    "unready": "the secret of the webhook is missing here",
}


class _Log(msgspec.Struct):
    """The log of one webhook: how many requests ended how, and the last ones, newest first."""

    outcomes: dict[str, int] = {}
    recent: List[HookRequest] = []
    delivered_at: int | None = None
    refused_at: int | None = None

    def add(self, more: _Log) -> None:
        for outcome, count in more.outcomes.items():
            self.outcomes[outcome] = self.outcomes.get(outcome, 0) + count
        self.recent = sorted([*more.recent, *self.recent], key=lambda one: one.at, reverse=True)[:_RECENT]
        self.delivered_at = max(more.delivered_at or 0, self.delivered_at or 0) or None
        self.refused_at = max(more.refused_at or 0, self.refused_at or 0) or None


class Hooks(Part):
    def __init__(self, broker: Parts) -> None:
        super().__init__(broker)
        self._logs: dict[str, _Log] = {}
        self._question = f"hooks {broker.tenant}"

    def note(self, name: str, outcome: str, status: int) -> None:
        """A request to a webhook in force was answered so."""
        now, taken = wall_clock(), outcome in _TAKEN
        request = HookRequest(at=Moment(now), outcome=outcome, status=status, why=_WHY.get(outcome))
        self._broker.processes.answers[self._question] = lambda: self._logs
        log = self._logs.setdefault(name, _Log())
        log.add(_Log({outcome: 1}, [request], now if taken else None, None if taken else now))

    async def list(self) -> List[Hook]:
        """Those in force, by name."""
        logs: dict[str, _Log] = {}
        for one in await self._broker.processes.ask(dict[str, _Log], self._question):
            for name, log in one.items():
                logs.setdefault(name, _Log()).add(log)
        return [self._shown(name, logs.get(name) or _Log()) for name in sorted(self._broker.compiled_specs.hooks)]

    async def page(self, query: HookListQuery, may_see: Callable[[Hook], bool]) -> HookList:
        """A page of those that may be seen, and the numbers of all those."""
        hooks = [one for one in await self.list() if may_see(one)]
        shown, total = page_of(
            hooks,
            query,
            text=lambda one: f"{one.name} {one.queue or ''}",
            up={"name": lambda one: one.name},
            down={"refused": lambda one: one.refused, "delivered": lambda one: one.delivered},
        )
        delivered, refused = sum(one.delivered for one in hooks), sum(one.refused for one in hooks)
        return HookList(hooks=shown, total=total, delivered=delivered, refused=refused)

    def _shown(self, name: str, log: _Log) -> Hook:
        spec, since = self._broker.compiled_specs.declaring(name).webhooks[name], wall_clock() - _LATELY
        return Hook(
            name=name,
            queue=spec.queue,
            command=spec.command.command if spec.command else None,
            scheme=spec.verify.scheme if spec.verify else None,
            available=self._broker.compiled_specs.hooks[name] is not None,
            delivered=sum(count for outcome, count in log.outcomes.items() if outcome in _TAKEN),
            refused=sum(count for outcome, count in log.outcomes.items() if outcome not in _TAKEN),
            refused_lately=sum(one.at > since and one.outcome in _UNSIGNED for one in log.recent),
            last_delivered_at=moment_or_none(log.delivered_at),
            last_refused_at=moment_or_none(log.refused_at),
            outcomes=log.outcomes,
            recent=log.recent,
        )

    def sample(self, name: str) -> tuple[dict[bytes, bytes], bytes]:
        """Headers and body as the sender of a webhook could send them, signed. NotFound if there is none, NotAvailable
        if its secret is missing here."""
        if name not in self._broker.compiled_specs.hooks:
            raise NotFound(f"there is no webhook {name!r:.200}")
        hook = self._broker.compiled_specs.hooks[name]
        if hook is None:
            raise NotAvailable("the secret of this webhook is missing here, so that nothing can be signed")
        spec, app = hook.spec, self._broker.compiled_specs.declaring(name)
        given = sample_of(sender_of(spec))
        body = msgspec.json.encode(sample_body(app, spec, given.body))
        id = str(uuid.uuid4())
        headers = {b"content-type": b"application/json"}
        headers |= {name.lower().encode(): value.encode() for name, value in given.headers.items()}
        if isinstance(spec.idempotency, ir.HeaderKey):
            headers[spec.idempotency.header.lower().encode()] = id.encode()
        return {**hook.signed(body, id, wall_clock() / 1e6), **headers}, body
