"""Access: who calls, and the scopes that say which verbs a caller may use on which queues.

A scope is a verb, or a verb with the queues it is for: `push`, `push:orders`, `push:orders.*`. A pattern is a whole
name, or the beginning of one with a `*` behind it, and nothing else. A role is a bundle of scopes, and may be given
with a pattern too. What is not granted is refused."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

from fairlane.errors import Forbidden, InvalidRequest
from fairlane.model.names import DEFAULT_TENANT, check_name

OF_QUEUES: Final = ("push", "pop", "create", "configure", "browse", "status", "seek", "replay", "purge")
"""Scopes that may be for some queues only."""
SCOPES: Final = (*OF_QUEUES, "spec", "system", "keys")
"""All; `spec` may be for the spec of one app: `spec:shop`."""
ROLES: Final = {
    "admin": SCOPES,
    "read-write": OF_QUEUES,
    "read-only": ("browse", "status"),
}
PUBLIC: Final = "public"
"""Needed by a route that asks for no credential."""
SIGNATURE: Final = "signature"
"""Needed by a route that proves by itself who asks, as webhooks do."""
KNOWN: Final = "known"
"""Needed by a route for any caller with a credential."""


class Grants(msgspec.Struct, frozen=True):
    """Scopes as they are looked up."""

    whole: frozenset[str] = frozenset()
    """Scopes for every queue."""
    exact: frozenset[tuple[str, str]] = frozenset()
    prefixes: tuple[tuple[str, str], ...] = ()

    @classmethod
    def parse(cls, texts: Iterable[str]) -> Grants:
        """Of scopes and roles. InvalidRequest names one that there is not."""
        whole, exact, prefixes = set(), set(), set()
        for text in texts:
            word, given, pattern = text.partition(":")
            scopes = ROLES.get(word, (word,))
            if unknown := set(scopes).difference(SCOPES):
                raise InvalidRequest(
                    f"{unknown.pop()!r:.80} is no scope; use {', '.join(SCOPES)} or a role: {', '.join(ROLES)}"
                )
            if given:
                _check_pattern(text, pattern, scopes)
            for scope in scopes:
                if not given or pattern == "*":
                    whole.add(scope)
                elif pattern.endswith("*"):
                    prefixes.add((scope, pattern[:-1]))
                else:
                    exact.add((scope, pattern))
        return cls(frozenset(whole), frozenset(exact), tuple(sorted(prefixes)))

    def allow(self, scope: str, name: str) -> bool:
        """For this queue; of `spec` for the spec of this app."""
        return (
            scope in self.whole
            or (scope, name) in self.exact
            or any(scope == one and name.startswith(prefix) for one, prefix in self.prefixes)
        )

    def some(self, scope: str) -> bool:
        """For one queue or another."""
        return (
            scope in self.whole
            or any(scope == one for one, _ in self.exact)
            or any(scope == one for one, _ in self.prefixes)
        )

    def cover(self, other: Grants) -> bool:
        """Whether the other ones allow nothing that these do not."""
        return (
            other.whole <= self.whole
            and all(self.allow(scope, name) for scope, name in other.exact)
            and all(
                scope in self.whole or any(scope == one and prefix.startswith(wider) for one, wider in self.prefixes)
                for scope, prefix in other.prefixes
            )
        )


def _check_pattern(text: str, pattern: str, scopes: tuple[str, ...]) -> None:
    if pattern != "*" and (wide := set(scopes) & {"system", "keys"}):
        raise InvalidRequest(f"{text!r:.80}: {wide.pop()} is for the whole broker and takes no queue")
    check_name("the queue of a scope", pattern)
    if "*" in pattern[:-1]:
        raise InvalidRequest(f"{text!r:.80}: a pattern is a name, or its beginning with a * at the end")


class Caller(msgspec.Struct, frozen=True, kw_only=True):
    """Whoever asks: made of a key, of a token, or nobody in particular."""

    tenant: str = DEFAULT_TENANT
    name: str
    """For the audit log and logs, as `key:deploy` or `token:alice`."""
    subject: str | None = None
    """Stamped on what it pushes, as producerSub."""
    key_id: str | None = None
    expires_at: int | None = None
    """Microseconds since 1970."""
    session: bytes | None = None
    """Hash of the login session it calls with, None if it sends its credential."""
    grants: Grants

    def allows(self, scope: str, name: str) -> bool:
        return self.grants.allow(scope, name)

    def allows_all(self, scope: str) -> bool:
        """For every queue."""
        return scope in self.grants.whole

    def allows_some(self, *scopes: str) -> bool:
        """One of these scopes for one queue or another."""
        return any(map(self.grants.some, scopes))

    def check(self, scope: str, *names: str) -> None:
        """Forbidden unless it may, on each of these queues; without any, on all that there are."""
        if scope in self.grants.whole:
            return
        if not names:
            raise Forbidden(f"{self.name} may not do this: it needs the scope {scope}, for all queues")
        for name in names:
            if not self.grants.allow(scope, name):
                raise Forbidden(f"{self.name} may not do this: it needs the scope {scope}:{name:.100}")


ANYBODY: Final = Caller(name="anybody", grants=Grants.parse(["admin"]))
"""The caller of a broker without credentials, and of one in its own process: it may do everything."""
NOBODY: Final = Caller(name="nobody", grants=Grants())
"""The caller without a credential, where one is asked for: it may do nothing."""
