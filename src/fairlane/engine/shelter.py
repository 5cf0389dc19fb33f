"""Where pushes and acks go when the store does not take them: into the journal, durably, to be applied later.

A lane with entries in the journal stays there: what comes for it goes behind them, also when the store is back, until
the drain has caught up. Every step that decides where something goes and marks its lane is done without waiting in
between, so that two requests for one lane keep their order."""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, NamedTuple

from fairlane.engine.ack import AckRequest
from fairlane.engine.catalogue import Catalogue
from fairlane.engine.draft import UNDECIDED, Flush, PushRequest
from fairlane.engine.kept import ack_entry, ack_lane, push_entry, push_lane
from fairlane.engine.store_watch import StoreWatch
from fairlane.errors import FairlaneError, InvalidRequest, JournalFull, OutcomeUnknown, StoreUnavailable
from fairlane.model.ids import Uuid7
from fairlane.model.names import DEFAULT_PARTITION
from fairlane.model.outcome import AckOutcome, BufferReason, PushOutcome
from fairlane.store.journal import Journal, Lane, NewEntry

PATIENCE_SECONDS = 2.0
"""A flush that takes longer is not waited for: what it carries is kept in the journal as well."""

PushAnswers = list[list[PushOutcome] | Exception]
AckAnswers = list[list[AckOutcome] | Exception]
PushRun = Callable[[Flush], Coroutine[Any, Any, PushAnswers]]
AckRun = Callable[[list[AckRequest]], Coroutine[Any, Any, AckAnswers]]


class Shelter:
    def __init__(
        self,
        journal: Journal,
        watch: StoreWatch,
        catalogue: Catalogue,
        *,
        maintenance: Callable[[], bool],
        clock_ms: Callable[[], int],
        patience_seconds: float = PATIENCE_SECONDS,
    ) -> None:
        self.journal = journal
        self.watch = watch
        self.patience_seconds = patience_seconds
        self._catalogue = catalogue
        self._maintenance = maintenance
        self._ids = Uuid7(clock_ms)
        self._held: Counter[Lane] = Counter()
        self.left_behind: set[asyncio.Task[Any]] = set()
        """Flushes that were not waited for. Nothing is applied from the journal while one of them may still be."""
        self.added = asyncio.Event()
        """Set when there is something to drain."""

    def hold(self, lanes: dict[Lane, int]) -> None:
        """Entries that an earlier process left."""
        self._held.update(lanes)
        if lanes:
            self.added.set()

    def let_go(self, lanes: Sequence[Lane]) -> None:
        """One entry of each is no longer in the journal."""
        for lane in lanes:
            self._held[lane] -= 1
            if self._held[lane] <= 0:
                del self._held[lane]

    def holds(self, lane: Lane) -> bool:
        return lane in self._held

    @property
    def lanes(self) -> int:
        return len(self._held)

    def diverted(self) -> BufferReason | None:
        """Why every push goes to the journal now, if so."""
        if self._maintenance():
            return "maintenance"
        return None if self.watch.up else "store_unavailable"

    async def push(self, requests: list[PushRequest], run: PushRun) -> PushAnswers:
        """`run` brings a flush into the store, one way or another."""
        reason = self.diverted()
        if reason is None and not self._held:
            return await self._push(requests, run)
        keep: list[_Share] = []
        direct: list[_Share] = []
        for number, request in enumerate(requests):
            for index, item in enumerate(request.items):
                lane = push_lane(request.tenant, item)
                (keep if reason is not None or lane in self._held else direct).append(_Share(number, index, None))
        answers: PushAnswers = [[UNDECIDED] * len(request.items) for request in requests]
        await self._keep(requests, keep, answers, reason or "maintaining_order")
        if direct:
            await self._push_some(requests, direct, answers, run)
        return answers

    async def _push_some(
        self, requests: list[PushRequest], shares: list[_Share], answers: PushAnswers, run: PushRun
    ) -> None:
        """Push a part of the items, and put what became of them into their places."""
        indexes: dict[int, list[int]] = defaultdict(list)
        for share in shares:
            indexes[share.request].append(share.item)
        parts = [PushRequest(requests[n].tenant, [requests[n].items[i] for i in some]) for n, some in indexes.items()]
        for (number, some), outcome in zip(indexes.items(), await self._push(parts, run), strict=True):
            known = answers[number]
            if isinstance(outcome, Exception):
                answers[number] = outcome
            elif isinstance(known, list):
                for index, one in zip(some, outcome, strict=True):
                    known[index] = one

    async def _push(self, requests: Sequence[PushRequest], run: PushRun) -> PushAnswers:
        """Into the store; what it does not take, or not in time, into the journal."""
        flush = Flush(requests)
        if not await self._in_time(run(flush)):
            flush.abandoned = True
        lost = [
            number
            for number, outcome in enumerate(flush.outcomes)
            if isinstance(outcome, StoreUnavailable | OutcomeUnknown)
            or (flush.abandoned and isinstance(outcome, list) and any(one is UNDECIDED for one in outcome))
        ]
        if not lost:
            return flush.outcomes
        answers: PushAnswers = list(flush.outcomes)
        error = next((outcome for outcome in answers if isinstance(outcome, FairlaneError)), None)
        self.watch.lost(str(error) if error else f"a push took longer than {self.patience_seconds:g} s")
        shares = _unsettled(flush, lost, answers)
        await self._keep(requests, shares, answers, "store_unavailable")
        return answers

    async def _in_time(self, work: Coroutine[Any, Any, Any]) -> bool:
        """Whether the work was done within the patience. If not, it goes on by itself."""
        task = asyncio.ensure_future(work)
        try:
            await asyncio.wait([task], timeout=self.patience_seconds)
            await asyncio.sleep(0)  # after a stall of this process both may be due, the answer and the deadline
        except asyncio.CancelledError:
            task.cancel()
            raise
        if task.done():
            task.result()
            return True
        self.left_behind.add(task)
        task.add_done_callback(self._ended)
        return False

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self.left_behind.discard(task)
        if not task.cancelled():
            task.exception()  # whoever waited for it was answered long ago

    async def _keep(
        self,
        requests: Sequence[PushRequest],
        shares: Sequence[_Share],
        answers: PushAnswers,
        reason: BufferReason,
    ) -> None:
        """Put these items into the journal and say so, or why not, in `answers`."""
        by_request: dict[int, dict[Lane, list[_Share]]] = defaultdict(lambda: defaultdict(list))
        for share in shares:
            request = requests[share.request]
            by_request[share.request][push_lane(request.tenant, request.items[share.item])].append(share)
        entries: list[NewEntry] = []
        kept: list[tuple[int, list[_Share], list[str], Lane]] = []
        room = self.journal.room()
        for number, lanes in by_request.items():
            try:
                self._check(lanes)
            except InvalidRequest as refusal:
                answers[number] = refusal
                continue
            except StoreUnavailable as refusal:
                answers[number] = _not_kept(refusal, [share for some in lanes.values() for share in some])
                continue
            mine = []
            for lane, some in lanes.items():
                ids = [share.transaction_id or self._id(requests[number], share) for share in some]
                items = [requests[number].items[share.item] for share in some]
                mine.append(push_entry(lane, list(zip(items, ids, strict=True))))
                kept.append((number, some, ids, lane))
            size = sum(entry.size for entry in mine)
            if size > room:
                del kept[len(kept) - len(mine) :]
                answers[number] = _not_kept(self._full(), [share for some in lanes.values() for share in some])
                continue
            room -= size
            entries += mine
        if not entries:
            return
        failure = await self._append(entries)
        for number, some, ids, lane in kept:
            outcomes = answers[number]
            if not isinstance(outcomes, list):
                continue
            if failure is not None:
                answers[number] = _not_kept(failure, some)
                continue
            for share, transaction_id in zip(some, ids, strict=True):
                outcomes[share.item] = PushOutcome(
                    "buffered",
                    transaction_id,
                    reason=reason,
                    durability="journal",
                    queue_position=self._held[lane],
                )

    def _id(self, request: PushRequest, share: _Share) -> str:
        return request.items[share.item].transaction_id or self._ids()

    def _full(self) -> JournalFull:
        state = self.journal.state()
        return JournalFull(
            f"the journal is full: {state.bytes} of {state.bytes_max} bytes; it empties when the store is back"
        )

    async def _append(self, entries: list[NewEntry]) -> FairlaneError | None:
        """Keep entries and hold their lanes; the error if they could not be kept."""
        lanes = [entry.lane for entry in entries]
        self._held.update(lanes)
        try:
            await self.journal.append(entries)
        except FairlaneError as error:
            self.let_go(lanes)
            return error
        self.added.set()
        return None

    def _check(self, lanes: dict[Lane, list[_Share]]) -> None:
        """What the store would refuse, as far as it is known without it."""
        for lane in lanes:
            queue = self._catalogue.recall(lane.tenant, lane.name)
            if queue is not None and queue.options.encryption_enabled:
                raise StoreUnavailable(
                    f"queue {lane.name!r} is encrypted, so that its messages are kept nowhere but in the store, "
                    "which does not take them now"
                )
            if queue is not None and queue.options.ordering == "fifo" and lane.partition != DEFAULT_PARTITION:
                raise InvalidRequest(f"queue {lane.name!r} is fifo: its only partition is {DEFAULT_PARTITION!r}")

    async def ack(self, requests: list[AckRequest], run: AckRun) -> AckAnswers:
        if not self.watch.up:
            return await self._keep_acks(requests, StoreUnavailable(self.watch.why), doubtful=False)
        if not self._held:
            return await self._ack(requests, run)
        held = [any(ack_lane(request, item) in self._held for item in request.items) for request in requests]
        answers: AckAnswers = [StoreUnavailable("not reached")] * len(requests)
        for kept in (True, False):
            numbers = [number for number, is_held in enumerate(held) if is_held is kept]
            some = [requests[number] for number in numbers]
            if not some:
                continue
            outcomes = (
                await self._keep_acks(some, StoreUnavailable(self.watch.why), doubtful=False)
                if kept
                else await self._ack(some, run)
            )
            for number, outcome in zip(numbers, outcomes, strict=True):
                answers[number] = outcome
        return answers

    async def _ack(self, requests: list[AckRequest], run: AckRun) -> AckAnswers:
        outcomes: AckAnswers = []

        async def collect() -> None:
            outcomes.extend(await run(requests))

        try:
            if await self._in_time(collect()):
                return outcomes
            error: FairlaneError = OutcomeUnknown(f"an ack took longer than {self.patience_seconds:g} s")
        except (StoreUnavailable, OutcomeUnknown) as lost:
            error = lost
        self.watch.lost(str(error))
        return await self._keep_acks(requests, error, doubtful=isinstance(error, OutcomeUnknown))

    async def _keep_acks(self, requests: list[AckRequest], error: FairlaneError, *, doubtful: bool) -> AckAnswers:
        """Applied twice an ack changes nothing, and a nack neither while its lease fences it; a nack without a lease
        could count twice, so that one is not kept once it may have been applied."""
        answers: AckAnswers = []
        entries: list[NewEntry] = []
        room = self.journal.room()
        for request in requests:
            lanes = defaultdict(list)
            for item in request.items:
                lanes[ack_lane(request, item)].append(item)
            mine = [ack_entry(lane, items) for lane, items in lanes.items()]
            size = sum(entry.size for entry in mine)
            unfenced = any(item.lease is None and item.status not in ("completed", "success") for item in request.items)
            if doubtful and unfenced:
                answers.append(error)
            elif size > room:
                answers.append(error if doubtful else self._full())
            else:
                room -= size
                entries += mine
                answers.append([AckOutcome(True, item.transaction_id, durability="journal") for item in request.items])
        failure = await self._append(entries) if entries else None
        if failure is not None:
            return [failure if isinstance(answer, list) else answer for answer in answers]
        return answers


class _Share(NamedTuple):
    """One item of one request; the id under which it may be in the store already."""

    request: int
    item: int
    transaction_id: str | None
    doubtful: bool = False


def _unsettled(flush: Flush, lost: Sequence[int], answers: PushAnswers) -> list[_Share]:
    """The items of the lost requests of which nothing is known. Those whose queue does not deduplicate get the error
    if they may be stored: kept as well, they could be there twice."""
    ids: dict[tuple[int, int], tuple[str | None, int]] = {}
    for draft in (*flush.failed, *flush.drafts.values()):
        window = draft.slice.options.dedup_seconds
        for owner, transaction_id in zip(draft.owners, draft.slice.transaction_ids, strict=True):
            ids[owner] = (transaction_id, window)
        for repeated, owners in draft.repeats.items():
            ids.update((owner, (repeated, window)) for owner in owners)
    shares: list[_Share] = []
    for number in lost:
        outcome = answers[number]
        decided = list(flush.partial.get(number) or (outcome if isinstance(outcome, list) else ()))
        decided = decided or [UNDECIDED] * len(flush.requests[number].items)
        mine = []
        for index, one in enumerate(decided):
            if one is UNDECIDED:
                known, window = ids.get((number, index), (None, 1))
                doubtful = flush.doubtful and known is not None
                mine.append(_Share(number, index, known, doubtful))
                if doubtful and window == 0:
                    answers[number] = OutcomeUnknown(
                        "the store may have stored this or not, and the queue keeps no ids by which a repeat is known"
                    )
                    break
        else:
            answers[number] = decided
            shares += mine
    return shares


def _not_kept(error: FairlaneError, shares: Sequence[_Share]) -> FairlaneError:
    """What may be stored already was not refused."""
    if any(share.doubtful for share in shares):
        return OutcomeUnknown(f"the store may have stored this or not, and the journal cannot take it: {error}")
    return error
