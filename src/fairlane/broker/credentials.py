"""Credentials: the cached keys of a store, and the callers that use them.

They are read when a version in the store increases, which every broker checks twice a second. While the store is
unavailable the last known keys stay valid. A waiting request ends when its caller's credential does.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import sys
from collections import Counter
from collections.abc import Awaitable
from time import monotonic
from typing import Final, TypeVar

import msgspec

from fairlane.errors import FairlaneError, Overloaded, StoreUnavailable, Unauthenticated
from fairlane.model.api_key import hash_of, is_whole
from fairlane.model.principal import ANYBODY, Grants, Principal
from fairlane.runtime.read_order import ReadOrder
from fairlane.store.contract.store import Store
from fairlane.store.families.api_keys import ApiKey, KnownKeys
from fairlane.store.families.queues import CATALOGUE
from fairlane.store.families.sessions import Session

T = TypeVar("T")
_USED_SECONDS: Final = 60.0
SESSION_SECONDS: Final = 12 * 3600
"""Time after which a browser must log in again."""
log = logging.getLogger(__name__)


class Credentials:
    def __init__(self, store: Store, polls_max: int) -> None:
        self._store = store
        self.required = False
        """True if credentials are required although the store has no key."""
        self.ignored = False
        """True if no credentials are required, because the operator said so."""
        self.anybody: Principal | None = ANYBODY
        """The caller of every request. None if credentials are required."""
        self.known: KnownKeys | None = None
        """Known keys. None until they were read."""
        self._reads = ReadOrder()
        self.version = 0
        """Number that increases when a cached caller may be invalid, and every minute."""
        self.used: set[str] = set()
        """Ids of keys that were used since that was last stored."""
        self._callers: dict[bytes, Principal] = {}
        self._sessions: dict[bytes, tuple[Principal, int]] = {}
        """Callers of login sessions by the hash of the session's id, each with the time it expires."""
        self._live: set[str] = set()
        self._waiting: dict[asyncio.Task[object], Principal] = {}
        self._waiting_of: Counter[str] = Counter()
        self._waiting_max = polls_max * 3 // 4
        """Largest number of waiting requests of one credential, so that it never uses all polls."""
        self._ended: set[asyncio.Task[object]] = set()
        self._store_used_at = 0.0

    def require(self, *, required: bool, ignored: bool) -> None:
        """Set when credentials are required: if the store has a key, always, or never."""
        self.required, self.ignored = required, ignored
        self._decide()

    def _decide(self) -> None:
        some = self.known is not None and self.known.count > 0
        self.anybody = ANYBODY if self.ignored or not (self.required or some) else None

    async def reload(self) -> None:
        """Read the keys. The result of an earlier read is ignored once a later one was loaded."""
        number = self._reads.start()
        known = await self._store.api_keys.load()
        if self._reads.may_load(number):
            self.load(known)

    def load(self, known: KnownKeys) -> None:
        self.known = known
        self._callers.clear()
        for key in known.keys:
            self._callers[key.hash] = caller = caller_of(key)
            if key.old_hash is not None and key.old_until is not None:
                until = min(key.old_until, key.expires_at or key.old_until)
                self._callers[key.old_hash] = msgspec.structs.replace(caller, expires_at=until)
        self._live = {key.id for key in known.keys}
        self._sessions.clear()
        for session in known.sessions:
            if session.key_hash is not None:
                owner = self._callers.get(session.key_hash)
            else:
                owner = msgspec.json.decode(session.caller or "", type=Principal)
            if owner is not None:
                found = msgspec.structs.replace(owner, session=session.hash)
                self._sessions[session.hash] = found, session.expires_at
        self.version += 1
        self._decide()
        self._end_waiting()

    def caller(self, secret: str) -> Principal:
        """Return the caller with this key.

        Raises Unauthenticated, which does not reveal if the key was valid before.
        """
        if not is_whole(secret):
            raise Unauthenticated("the key is incomplete or mistyped; copy it again, from fl_ to its end")
        if self.known is None:
            raise StoreUnavailable(
                "the keys are not known yet, because the store has not answered since the broker started"
            )
        caller = self._callers.get(hash_of(secret))
        if caller is None or not self.is_good(caller):
            raise Unauthenticated("the key is not valid: it is unknown, revoked or expired")
        self.used.add(caller.key_id or "")
        return caller

    async def log_in(self, caller: Principal, secret: str) -> str:
        """Open a session for a caller with this key or token, and return its id.

        The session ends with the credential, by `log_out`, or after `SESSION_SECONDS`.
        """
        session_id = secrets.token_urlsafe(32)
        session = Session(
            hash=hash_of(session_id),
            tenant=caller.tenant,
            owner=caller.name if caller.key_id is None else caller.key_id,
            key_hash=None if caller.key_id is None else hash_of(secret),
            caller=msgspec.json.encode(caller).decode() if caller.key_id is None else None,
            expires_at=await self._store.now() + SESSION_SECONDS * 1_000_000,
        )
        await self._store.sessions.add(session)
        await self.changed()
        return session_id

    async def log_out(self, session_id: str) -> None:
        """End a session, if there is one with this id."""
        if hash_of(session_id) in self._sessions:
            await self._store.sessions.end(hash_of(session_id))
            await self.changed()

    async def changed(self) -> None:
        """Read the keys and sessions after a change, and notify the other brokers."""
        await self.reload()
        self._store.hint(CATALOGUE)

    def logged_in(self, session_id: str) -> Principal | None:
        """Return the caller of a login session, or None if the session does not exist or has ended."""
        caller, _ = self._sessions.get(hash_of(session_id), (None, 0))
        if caller is None or not self.is_good(caller):
            return None
        if caller.key_id is not None:
            self.used.add(caller.key_id)
        return caller

    def is_good(self, caller: Principal) -> bool:
        """Return True if an authenticated caller is still valid. `ANYBODY` is valid until credentials are required."""
        if caller is ANYBODY:
            return self.anybody is not None
        expires_at = caller.expires_at
        if caller.session is not None:
            expires_at = min(self._sessions.get(caller.session, (caller, 0))[1], expires_at or sys.maxsize)
        if expires_at is not None and expires_at <= self._store.id_time() * 1000:
            return False
        return caller.key_id is None or caller.key_id in self._live

    def check_good(self, caller: Principal) -> None:
        """Raise Unauthenticated if the credential of an authenticated caller has ended."""
        if not self.is_good(caller):
            raise _ended(caller)

    def check_waiting(self, caller: Principal) -> None:
        """Raise Overloaded if too many requests of this credential wait. Anonymous callers have no such limit."""
        if caller is ANYBODY:
            return
        if self._waiting_of.get(caller.key_id or caller.name, 0) >= self._waiting_max:
            text = f"{caller.name} has {self._waiting_max} waiting requests at this broker, which is the limit"
            raise Overloaded(f"{text}; use another key, or another broker, for some of them")

    async def while_good(self, caller: Principal, answer: Awaitable[T]) -> T:
        """Await the answer to a long request. Raises Unauthenticated as soon as the credential of its caller ends."""
        task, who = asyncio.current_task(), caller.key_id or caller.name
        assert task is not None
        self._waiting[task] = caller
        self._waiting_of[who] += 1
        try:
            return await answer
        except asyncio.CancelledError:
            if task in self._ended and task.uncancel() == 0:
                raise _ended(caller) from None
            raise
        finally:
            self._waiting.pop(task, None)
            self._waiting_of[who] -= 1
            if self._waiting_of[who] <= 0:
                del self._waiting_of[who]
            self._ended.discard(task)

    def _end_waiting(self) -> None:
        for task, caller in self._waiting.items():
            if task not in self._ended and not self.is_good(caller):
                self._ended.add(task)
                task.cancel()

    async def refresh(self) -> None:
        """End requests whose credentials have expired, and store which keys were used. Called twice a second."""
        self._end_waiting()
        if self.used and monotonic() >= self._store_used_at:
            self._store_used_at = monotonic() + _USED_SECONDS
            used, self.used = self.used, set()
            self.version += 1  # callers that return count as used again
            try:
                await self._store.api_keys.mark_used(sorted(used))
            except FairlaneError as error:
                log.debug("cannot store which keys were used: %(error)s", {"error": error})


def _ended(caller: Principal) -> Unauthenticated:
    if caller is ANYBODY:
        return Unauthenticated("this broker has begun to require a key: send it as `Authorization: Bearer fl_...`")
    return Unauthenticated("the credential was revoked or has expired while this request waited")


def caller_of(key: ApiKey) -> Principal:
    return Principal(
        tenant=key.tenant,
        name=f"key:{key.name}",
        subject=key.name,
        key_id=key.id,
        expires_at=key.expires_at,
        grants=grants_of(key.role, key.scopes),
    )


def grants_of(role: str | None, scopes: list[str]) -> Grants:
    return Grants.parse(scopes if role is None else [role, *scopes])
