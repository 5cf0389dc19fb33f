"""The signing keys that an identity provider publishes (JWKS).

They are read periodically, and when a token names an unknown key. If that fails, the known keys stay valid.
"""

from __future__ import annotations

import logging
from time import monotonic
from typing import Any, Final

import msgspec

from fairlane.errors import CommandFailed
from fairlane.http.auth.tokens import VerificationKey, published_keys
from fairlane.outbound.addresses import Allowed, check_url
from fairlane.outbound.client import OutboundClient
from fairlane.runtime.service import Service

READ_SECONDS: Final = 300.0
REFRESH_SECONDS_MIN: Final = 10.0
"""Minimum time between reads, so that tokens with made-up keys cause no flood."""
BYTES_MAX: Final = 256 * 1024
KEYS_MAX: Final = 100

log = logging.getLogger(__name__)


class _Answer(msgspec.Struct):
    keys: list[Any]


class Jwks(Service):
    """The keys at a URL. `keys` is replaced by a new list when they change."""

    def __init__(self, url: str, allowed: Allowed, *, client: OutboundClient | None = None) -> None:
        super().__init__("keys of tokens")
        check_url(url, allowed)
        self.keys: list[VerificationKey] = []
        self._url = url
        self._client = client or OutboundClient(allowed, bytes_max=BYTES_MAX)
        self._last: bytes | None = None
        self._requested_at = -REFRESH_SECONDS_MIN
        self._busy = False

    def request_refresh(self) -> bool:
        """Ask for a read of the keys, and return True if one is in progress or due."""
        if monotonic() - self._requested_at >= REFRESH_SECONDS_MIN:
            self._requested_at, self._busy = monotonic(), True
            self.wake()
        return self._busy or self._last is None

    async def _run(self) -> None:
        while not self._stopping:
            await self._rest(READ_SECONDS if self._last is not None else REFRESH_SECONDS_MIN)
            if not self._stopping:
                await self.read()

    async def stop(self) -> None:
        await super().stop()
        await self._client.close()

    async def read(self) -> None:
        """Read the keys once. A failure is logged and changes nothing."""
        self._requested_at, self._busy = monotonic(), True
        try:
            reply = await self._client.call("GET", self._url, headers={"Accept": "application/json"}, body=None)
            if reply.status != 200 or not reply.whole:
                raise CommandFailed(
                    f"the answer is {reply.status}" if reply.whole else f"it has over {BYTES_MAX} bytes"
                )
            found = reply.json(_Answer).keys
            if len(found) > KEYS_MAX or not (keys := published_keys(found)):
                raise CommandFailed(f"it has {len(found)} keys, and should have 1 to {KEYS_MAX} of a known kind")
        except (CommandFailed, msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            log.warning(
                "cannot read the signing keys of tokens from %(url)s: %(error)s", {"url": self._url, "error": error}
            )
            return
        finally:
            self._busy = False
        if reply.body != self._last:
            self._last, self.keys = reply.body, keys
            log.info("read %(keys)d keys of tokens from %(url)s", {"keys": len(keys), "url": self._url})
