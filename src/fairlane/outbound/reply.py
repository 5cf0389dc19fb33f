"""The response of another server, apart from the client that fetched it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from fairlane.errors import FairlaneError, Overloaded, Unavailable
from fairlane.model.decoding import decoder_of
from fairlane.runtime.backoff import seconds_of


class Reply(msgspec.Struct, frozen=True):
    """The response of a server outside Fairlane."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    whole: bool = True
    """False if the body was cut off at the size limit."""

    def json(self, type: Any = Any) -> Any:
        return decoder_of(type)(self.body)

    def raise_for_status(self) -> Reply:
        """Return this reply if its status is below 400.

        Raises Overloaded for 429, Unavailable for 5xx and FairlaneError for any other status.
        """
        if self.status < 400:
            return self
        text = f"the server answered {self.status}: {self.body[:200].decode(errors='replace')}"
        if self.status == 429:
            raise Overloaded(text, retry_after=seconds_of(self.headers.get("Retry-After")) or 5.0)
        raise Unavailable(text) if self.status >= 500 else FairlaneError(text)
