"""The keys that an identity provider publishes (JWKS), read again from time to time and when a token names one that is
not known. While they cannot be read, those that were go on."""

from __future__ import annotations

import logging
from time import monotonic
from typing import Any, Final

import msgspec

from fairlane.errors import CommandFailed
from fairlane.http.tokens import Key, published_keys
from fairlane.outbound.addresses import Allowed, check_url
from fairlane.outbound.caller import Caller
from fairlane.runtime.service import Service

READ_SECONDS: Final = 300.0
ASK_SECONDS: Final = 10.0
"""Tokens with made-up keys make nobody read more often than this."""
BYTES_MAX: Final = 256 * 1024
KEYS_MAX: Final = 100

log = logging.getLogger(__name__)


class _Answer(msgspec.Struct):
    keys: list[Any]


class Jwks(Service):
    """The keys at a URL. `keys` is another list whenever they changed."""

    def __init__(self, url: str, allowed: Allowed, *, caller: Caller | None = None) -> None:
        super().__init__("keys of tokens")
        check_url(url, allowed)
        self.keys: list[Key] = []
        self._url = url
        self._caller = caller or Caller(allowed, bytes_max=BYTES_MAX)
        self._last: bytes | None = None
        self._asked_at = -ASK_SECONDS
        self._busy = False

    def ask(self) -> bool:
        """Whether they are being read now, or about to be."""
        if monotonic() - self._asked_at >= ASK_SECONDS:
            self._asked_at, self._busy = monotonic(), True
            self.wake()
        return self._busy or self._last is None

    async def _run(self) -> None:
        while not self._stopping:
            await self._rest(READ_SECONDS if self._last is not None else ASK_SECONDS)
            if not self._stopping:
                await self.read()

    async def stop(self) -> None:
        await super().stop()
        await self._caller.close()

    async def read(self) -> None:
        """Once. What cannot be read changes nothing, and is logged."""
        self._asked_at, self._busy = monotonic(), True
        try:
            reply = await self._caller.call("GET", self._url, headers={"Accept": "application/json"}, body=None)
            if reply.status != 200 or not reply.whole:
                raise CommandFailed(
                    f"the answer is {reply.status}" if reply.whole else f"it has over {BYTES_MAX} bytes"
                )
            found = reply.json(_Answer).keys
            if len(found) > KEYS_MAX or not (keys := published_keys(found)):
                raise CommandFailed(f"it has {len(found)} keys, and should have 1 to {KEYS_MAX} of a known kind")
        except (CommandFailed, msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            log.warning("the keys of tokens cannot be read from %(url)s: %(error)s", {"url": self._url, "error": error})
            return
        finally:
            self._busy = False
        if reply.body != self._last:
            self._last, self.keys = reply.body, keys
            log.info("read %(keys)d keys of tokens from %(url)s", {"keys": len(keys), "url": self._url})
