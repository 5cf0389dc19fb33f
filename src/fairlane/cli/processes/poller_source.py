"""The source of a poller that a spec declares."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from fairlane.poller import Source
    from fairlane.spec.ir import PollerSpec


def source_of(
    name: str,
    declared: PollerSpec,
    variables: Callable[[Sequence[str]], Sequence[str]],
    *,
    allow_private: bool = False,
) -> Source:
    """Return the source that a declared poller reads. `variables` returns the values of environment variables."""
    from fairlane.poller import Source

    fields = msgspec.structs.asdict(declared)
    token_env, sweep_seconds = fields.pop("token_env"), fields.pop("sweep_seconds")
    if token_env is not None:
        fields["headers"] = {"Authorization": f"Bearer {variables([token_env])[0]}"}
    return Source(name=name, sweep_seconds=sweep_seconds or None, allow_private=allow_private, **fields).check()
