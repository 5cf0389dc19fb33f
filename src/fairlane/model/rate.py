"""Rates, as queue options write them: `10/1m` is ten messages in any minute."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from fairlane.errors import InvalidRequest
from fairlane.model.limits import SECONDS_MAX

COUNT_MAX: Final = 10_000
_RATE = re.compile(r"([1-9][0-9]{0,4})/([1-9][0-9]{0,5})?([smhd])", re.ASCII)
_UNITS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400}


class DeliveryRate(NamedTuple):
    """At most `messages` messages in any period of `seconds`."""

    messages: int
    seconds: int

    @classmethod
    def parse(cls, name: str, text: object) -> DeliveryRate:
        """Parse a rate. Raises InvalidRequest, which calls it `name`."""
        match = _RATE.fullmatch(text) if isinstance(text, str) else None
        rate = None if match is None else cls(int(match[1]), int(match[2] or 1) * _UNITS[match[3]])
        if rate is None or rate.messages > COUNT_MAX or rate.seconds > SECONDS_MAX:
            raise InvalidRequest(
                f"{name} is {text!r:.40}; write a number up to {COUNT_MAX}, a slash and a time: '10/1m' is ten a minute"
            )
        return rate
