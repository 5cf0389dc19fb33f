"""Effects on the wire: what a handler did once for a message."""

from __future__ import annotations

from typing import Annotated

import msgspec

from fairlane.model.limits import SECONDS_MAX
from fairlane.wire.base import Answer, Body


class EffectQuery(Body):
    partition_id: str
    """Of the message."""


class EffectBody(Body):
    partition_id: str
    """Of the message."""
    value: msgspec.Raw
    seconds: Annotated[int, msgspec.Meta(ge=1, le=SECONDS_MAX)] = 7 * 24 * 3600


class Effect(Answer):
    key: str
    value: msgspec.Raw
    """The first one that was kept."""
