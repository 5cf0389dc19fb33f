"""The principal of a request, and the scopes that decide which verbs it may use on which queues.

A scope is a verb, or a verb with queues: `push`, `push:orders`, `push:orders.*`. A pattern is a whole name, or a prefix
followed by `*`. A role is a bundle of scopes and may have a pattern, too. Everything that is not granted is refused.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

from fairlane.errors import Forbidden, InvalidRequest
from fairlane.model.names import DEFAULT_TENANT, check_name

OF_QUEUES: Final = ("push", "pop", "create", "configure", "browse", "status", "seek", "replay", "purge")
"""Scopes that may be limited to some queues."""
SCOPES: Final = (*OF_QUEUES, "spec", "system", "keys")
"""All scopes. `spec` may be limited to the spec of one app: `spec:shop`."""
ROLES: Final = {
    "admin": SCOPES,
    "read-write": OF_QUEUES,
    "read-only": ("browse", "status"),
}
PUBLIC: Final = "public"
"""Scope of routes that need no credential."""
SIGNATURE: Final = "signature"
"""Scope of routes that authenticate by a signature of the body, such as webhooks."""
KNOWN: Final = "known"
"""Scope of routes for any caller with a valid credential."""


class Grants(msgspec.Struct, frozen=True):
    """Scopes in a form for fast lookup."""

    whole: frozenset[str] = frozenset()
    """Scopes that hold for every queue."""
    exact: frozenset[tuple[str, str]] = frozenset()
    prefixes: tuple[tuple[str, str], ...] = ()

    @classmethod
    def parse(cls, texts: Iterable[str]) -> Grants:
        """Parse scopes and roles. Raises InvalidRequest for an unknown one."""
        whole, exact, prefixes = set(), set(), set()
        for text in texts:
            word, given, pattern = text.partition(":")
            scopes = ROLES.get(word, (word,))
            if unknown := set(scopes).difference(SCOPES):
                raise InvalidRequest(
                    f"{unknown.pop()!r:.80} is not a scope; use {', '.join(SCOPES)} or a role: {', '.join(ROLES)}"
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
        """Return True if the scope is granted for this queue, or `spec` for this app."""
        return (
            scope in self.whole
            or (scope, name) in self.exact
            or any(scope == one and name.startswith(prefix) for one, prefix in self.prefixes)
        )

    def allow_any(self, scope: str) -> bool:
        """Return True if the scope is granted for at least one queue."""
        return (
            scope in self.whole
            or any(scope == one for one, _ in self.exact)
            or any(scope == one for one, _ in self.prefixes)
        )

    def covers(self, other: Grants) -> bool:
        """Return True if everything `other` allows is allowed here too."""
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


class Principal(msgspec.Struct, frozen=True, kw_only=True):
    """The sender of a request: the holder of a key or token, or an anonymous caller."""

    tenant: str = DEFAULT_TENANT
    name: str
    """Name for the audit log and log lines, for example `key:deploy` or `token:alice`."""
    subject: str | None = None
    """Subject that is recorded as producerSub of its messages."""
    key_id: str | None = None
    expires_at: int | None = None
    """Expiry of the credential, in microseconds since 1970. None if it does not expire."""
    session: bytes | None = None
    """Hash of the login session of the request. None if it sends its credential."""
    grants: Grants

    def allows(self, scope: str, name: str) -> bool:
        return self.grants.allow(scope, name)

    def allows_all(self, scope: str) -> bool:
        """Return True if the scope is granted for every queue."""
        return scope in self.grants.whole

    def allows_some(self, *scopes: str) -> bool:
        """Return True if one of these scopes is granted for at least one queue."""
        return any(map(self.grants.allow_any, scopes))

    def check(self, scope: str, *names: str) -> None:
        """Raise Forbidden unless the scope is granted for each of these queues, or for all queues if none is given."""
        if scope in self.grants.whole:
            return
        if not names:
            raise Forbidden(f"{self.name} may not do this: it needs the scope {scope}, for all queues")
        for name in names:
            if not self.grants.allow(scope, name):
                raise Forbidden(f"{self.name} may not do this: it needs the scope {scope}:{name:.100}")


ANYBODY: Final = Principal(name="anybody", grants=Grants.parse(["admin"]))
"""The caller of a broker without credentials or inside the process. It may do everything."""
NOBODY: Final = Principal(name="nobody", grants=Grants())
"""The caller without a credential where one is required. It may do nothing."""
