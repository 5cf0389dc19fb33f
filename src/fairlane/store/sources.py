"""What both stores refuse a step of a source for."""

from __future__ import annotations

from fairlane.errors import Conflict, FairlaneError, LeaseLost
from fairlane.model.source import Source, SourceStep


def refusal(step: SourceStep, source: Source | None, now: int) -> FairlaneError | None:
    """None if the step may be taken from where the source stands now."""
    if source is None or source.id != step.source_id or source.revision != step.before:
        return Conflict(f"source {step.name!r:.80} is not at this revision any more")
    if source.token != step.token or source.leased_until is None or source.leased_until <= now:
        return LeaseLost(f"the lease of source {step.name!r:.80} ended")
    return None
