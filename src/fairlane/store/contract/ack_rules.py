"""Rules about acks and their results: which acks took effect, and which only repeat an earlier one."""

from __future__ import annotations

from collections.abc import Sequence

from fairlane.store.contract.values import AckResult, LaneAck, Span


def doubtful(ack: LaneAck, acked: AckResult) -> list[Span]:
    """Return the spans to look up, because some of their messages may have been cancelled. Nearly always empty."""
    if acked.state == "lost" or acked.finished or acked.lost:
        # Behind a nack an ordered ack has no spans, but its caller may have named such messages.
        behind = acked.finished if ack.nacks and not ack.unordered else []
        return [*_named(ack), *((position, position + 1) for position in behind)]
    if acked.state != "ok" or ack.unordered:
        return []
    return [(first, min(upto, acked.before)) for first, upto in _named(ack) if first < acked.before]


def in_force(ack: LaneAck, acked: AckResult) -> bool:
    """Return True if the whole ack took effect, now or, for finished messages, in an earlier attempt."""
    if any(first <= position < upto for first, upto in _named(ack) for position in acked.cancelled):
        return False
    late = {dead.position for dead in ack.dead_letters} | {nack.position for nack in ack.nacks}
    if ack.unordered:
        return acked.state == "ok" and not acked.lost and late.isdisjoint(acked.finished)
    if acked.state != "ok":
        return acked.repeated
    if ack.token is None and any(nack.position >= acked.limit for nack in ack.nacks):
        return False
    if any(position < acked.before or position in acked.finished for position in late):
        return False
    return not ack.done or ack.done[-1][1] <= acked.limit


def only_repeats(acks: Sequence[LaneAck], acked: Sequence[AckResult]) -> bool:
    """Return True if there are acks and every one of them repeats an earlier one."""
    return bool(acks) and all(map(_is_repeat, acks, acked))


def _is_repeat(ack: LaneAck, acked: AckResult) -> bool:
    if acked.cancelled:
        return False
    if ack.nacks or ack.dead_letters or ack.release:
        return acked.repeated and not ack.unordered and acked.state != "ok"
    if ack.unordered:
        return len(acked.finished) == sum(upto - first for first, upto in ack.done)
    if acked.state != "ok":
        return acked.repeated
    finished = set(acked.finished)
    return all(finished.issuperset(range(max(first, acked.before), upto)) for first, upto in ack.done)


def _named(ack: LaneAck) -> list[Span]:
    """Return the positions that the caller named, as spans."""
    done = [(upto - 1, upto) for _, upto in ack.done[:1]] + ack.done[1:] if ack.cumulative else ack.done
    others = [*(one.position for one in ack.nacks), *(one.position for one in ack.dead_letters)]
    return [*done, *((position, position + 1) for position in others)]
