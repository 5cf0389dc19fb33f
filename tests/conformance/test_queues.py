"""Queues and partitions: created once, found by name, and gone when deleted."""

from __future__ import annotations

import asyncio

import pytest

from fairlane.errors import InvalidRequest, NotFound, OptionsChanged
from fairlane.model.ids import PartitionId, cell_of
from fairlane.model.message import PushItem
from fairlane.model.names import DEFAULT_TENANT
from fairlane.model.queue import QueueOptions, labels_of, queue_options
from fairlane.store.contract.values import DeadFilter, Gone, LaneAck, Nack, PopCall, PopClaim
from tests.conformance.harness import Harness

AWKWARD_NAMES = [
    "a/b",
    "a b",
    "%41",
    "'; DROP TABLE fairlane.queues; --",
    '"quoted"',
    "back\\slash",
    "new\nline",
    "%s {} $1 ?",
    "Grüße",
    "名前",
    "e\u0301",
    "\u00e9",
    "😀" * 255,
    "\x7f",
    " ",
]


async def test_a_queue_made_by_use_has_default_options_and_labels_from_its_name(harness: Harness) -> None:
    name = harness.name("shop.orders.eu")
    queue = await harness.store.queues.ensure(DEFAULT_TENANT, name)
    assert queue.name == name
    assert queue.tenant == DEFAULT_TENANT
    assert queue.options == QueueOptions()
    assert (queue.namespace, queue.task) == labels_of(name) == ("shop", "orders")
    assert queue.created_at == harness.clock()


async def test_ensuring_a_queue_again_changes_nothing(harness: Harness) -> None:
    queue = await harness.queue(lease_seconds=7)
    assert await harness.store.queues.ensure(DEFAULT_TENANT, queue.name) == queue
    assert await harness.store.queues.get(DEFAULT_TENANT, queue.name) == queue


async def test_an_unknown_queue_is_none(harness: Harness) -> None:
    assert await harness.store.queues.get(DEFAULT_TENANT, harness.name("nowhere")) is None


async def test_every_option_is_kept(harness: Harness) -> None:
    options = queue_options(
        ordering="per_key",
        lease_seconds=11,
        retry_limit=12,
        retry_delay_ms=13,
        retry_delay_max_ms=14,
        retry_jitter=True,
        max_size=2**53,
        max_running=15,
        rate="10/1m",
        rate_per_key="2/1m",
        dedup_seconds=16,
        delay_seconds=17,
        window_seconds=18,
        ttl_seconds=19,
        max_wait_seconds=20,
        priority=-21,
        retention_enabled=True,
        retention_seconds=22,
        completed_retention_seconds=23,
        dead_letter_retention_seconds=24,
        encryption_enabled=True,
        dead_letter_queue="graveyard",
        dlq_after_max_retries=True,
    )
    name = harness.name("full")
    made = await harness.store.queues.configure(DEFAULT_TENANT, name, options, namespace="n", task="t")
    assert made.options == options
    found = await harness.store.queues.get(DEFAULT_TENANT, name)
    assert found == made
    assert (made.namespace, made.task) == ("n", "t")


async def test_configuring_replaces_options_and_keeps_messages_cursors_and_leases(harness: Harness) -> None:
    queue = await harness.queue(retry_limit=9, lease_seconds=30)
    await harness.push(queue, ["a", "b", "c"])
    taken = await harness.pop(queue, batch=2)
    again = await harness.configure(queue, lease_seconds=60)
    assert again.id == queue.id
    assert again.created_at == queue.created_at
    assert again.options == queue_options(lease_seconds=60)
    assert not await harness.pop(again), "the lease must live on"
    assert (await harness.ack(taken)).state == "ok"
    assert (await harness.pop(again)).data == ["c"]


async def test_queues_are_listed_newest_first(harness: Harness) -> None:
    made = []
    for _ in range(3):
        harness.clock.advance(1)
        made.append(await harness.queue())
    names = {queue.name for queue in made}
    listed = [queue for queue in await harness.store.queues.all(DEFAULT_TENANT) if queue.name in names]
    assert listed == made[::-1]


async def test_names_may_be_any_text(harness: Harness) -> None:
    for awkward in AWKWARD_NAMES:
        name = (awkward + harness.name("-"))[-255:]
        queue = await harness.store.queues.ensure(DEFAULT_TENANT, name)
        assert await harness.store.queues.get(DEFAULT_TENANT, name) == queue
    queue = await harness.queue()
    born = await harness.store.queues.ensure_partitions(queue.id, AWKWARD_NAMES)
    assert [partition.name for partition in born] == AWKWARD_NAMES
    assert len({partition.id for partition in born}) == len(AWKWARD_NAMES)
    group = await harness.group(queue, "Gruppe: 😀'\"%s")
    assert [found.name for found in await harness.store.groups.all(queue.id)] == [group.name]


async def test_names_that_differ_in_case_or_accent_are_different(harness: Harness) -> None:
    queue = await harness.queue()
    names = ["Lane", "lane", "LANE", "lane ", "l\u00e4ne", "la\u0308ne"]
    born = await harness.store.queues.ensure_partitions(queue.id, names)
    assert len({partition.id for partition in born}) == len(names)


async def test_a_partition_is_born_once(harness: Harness) -> None:
    queue = await harness.queue()
    first = await harness.store.queues.ensure_partitions(queue.id, ["b", "a"])
    again = await harness.store.queues.ensure_partitions(queue.id, ["c", "a", "b"])
    assert [partition.name for partition in first] == ["b", "a"]
    assert [partition.name for partition in again] == ["c", "a", "b"]
    assert again[1:] == first[::-1]
    for partition in again:
        assert partition.queue_id == queue.id
        assert await harness.store.queues.partition(partition.id) == partition


async def test_partitions_of_the_same_name_in_two_queues_are_two(harness: Harness) -> None:
    one, two = await harness.queue(), await harness.queue()
    assert (await harness.partition(one)).id != (await harness.partition(two)).id
    await harness.push(one, ["a"])
    assert not await harness.pop(two)


async def test_an_unknown_partition_is_none(harness: Harness) -> None:
    assert await harness.store.queues.partition(PartitionId(0, 2**62)) is None
    assert await harness.store.queues.partition(PartitionId(2**31 - 1, 1)) is None


async def test_a_partition_is_found_by_name_and_not_made_by_looking(harness: Harness) -> None:
    queue = await harness.queue()
    made = await harness.partition(queue, "there")
    assert await harness.store.queues.named(queue.id, "there") == made
    assert await harness.store.queues.named(queue.id, "missing") is None
    assert await harness.store.queues.named(2**62, "there") is None
    assert [state.name for state in await harness.store.statistics.partitions(queue.id)] == ["there"]


async def test_partitions_are_listed_by_name_in_code_point_order(harness: Harness) -> None:
    queue = await harness.queue()
    names = ["b", "B", "a", "_", "é", "z", "ab", "a b", "10", "9", "Ω", "\U0001f600", "\uffee"]
    await harness.store.queues.ensure_partitions(queue.id, names)
    listed = [state.name for state in await harness.store.statistics.partitions(queue.id)]
    assert listed == sorted(names)
    paged: list[str] = []
    while page := await harness.store.statistics.partitions(queue.id, after=paged[-1] if paged else "", limit=4):
        assert len(page) <= 4
        paged += [state.name for state in page]
    assert paged == sorted(names)


async def test_a_partition_tells_where_its_log_begins_and_ends(harness: Harness) -> None:
    queue = await harness.queue()
    await harness.partition(queue, "a")
    born_at = harness.clock()
    harness.clock.advance(5)
    await harness.push(queue, [1, 2, 3], partition="a")
    [state] = await harness.store.statistics.partitions(queue.id)
    assert (state.start, state.head, state.last_at, state.created_at) == (0, 3, harness.clock(), born_at)


async def test_a_partition_of_a_queue_that_is_gone_is_not_born(harness: Harness) -> None:
    queue = await harness.queue()
    await harness.store.queues.delete(DEFAULT_TENANT, queue.name)
    with pytest.raises(NotFound):
        await harness.store.queues.ensure_partitions(queue.id, ["a"])
    with pytest.raises(NotFound):
        await harness.store.queues.ensure_partitions(2**62, ["a"])


async def test_deleting_a_queue_that_is_not_there_says_so(harness: Harness) -> None:
    queue = await harness.queue()
    assert await harness.store.queues.delete(DEFAULT_TENANT, queue.name) is True
    assert await harness.store.queues.delete(DEFAULT_TENANT, queue.name) is False
    assert await harness.store.queues.get(DEFAULT_TENANT, queue.name) is None
    assert queue.name not in {other.name for other in await harness.store.queues.all(DEFAULT_TENANT)}


async def test_nothing_of_a_deleted_queue_can_be_pushed_claimed_or_acked(harness: Harness) -> None:
    queue = await harness.queue()
    partition = await harness.partition(queue)
    await harness.push(queue, ["a", "b"], ids=["id-a", "id-b"])
    taken = await harness.pop(queue, batch=1)
    await harness.store.queues.delete(DEFAULT_TENANT, queue.name)

    store = harness.store.messages
    assert await store.push([harness.slice(queue, partition, ["c"])]) == [Gone()]
    result = await store.pop(PopCall(queue_id=queue.id, group_id=taken.group.id, claims=[PopClaim(taken.token, 1)]))
    assert result.gone
    assert result.lanes == [[]]
    nack = Nack(0, charge=True, error="late")
    for ack in (
        harness.ordered_ack(taken, 1),
        harness.ordered_ack(taken, nack=nack),
        LaneAck(partition=partition.id, group_id=taken.group.id, token=None, done=[(0, 1)]),
    ):
        assert (await harness.apply(ack)).state == "gone"
    assert (await harness.renew(taken.lease, seconds=60)).renewed == 0
    assert await store.release(taken.lease) == 0
    assert await store.leased(taken.lease) == []
    assert await store.find(partition.id, "id-a") is None
    assert await harness.store.queues.partition(partition.id) is None
    with pytest.raises(NotFound):
        await harness.store.queues.depth(queue.id)


async def test_a_queue_made_again_under_its_name_is_another_one_and_empty(harness: Harness) -> None:
    queue = await harness.queue(retry_limit=0, lease_seconds=5, max_size=10)
    await harness.push(queue, ["a", "b"], ids=["id-a", "id-b"])
    taken = await harness.pop(queue, batch=1)
    assert (await harness.nack(taken)).dead
    await harness.store.queues.delete(DEFAULT_TENANT, queue.name)

    again = await harness.store.queues.ensure(DEFAULT_TENANT, queue.name)
    assert again.id != queue.id
    assert again.options == QueueOptions()
    assert await harness.store.statistics.partitions(again.id) == []
    assert await harness.store.groups.all(again.id) == []
    assert await harness.store.queues.depth(again.id) == 0
    assert await harness.store.dead_letters.count(again.id, DeadFilter()) == 0
    assert (await harness.push(again, ["c"], ids=["id-a"])).first == 0
    assert (await harness.pop(again)).data == ["c"]


async def test_deleting_a_queue_leaves_its_neighbours_alone(harness: Harness) -> None:
    keep, drop = await harness.queue(), await harness.queue()
    await harness.push(keep, ["a", "b"])
    await harness.push(drop, ["x"])
    taken = await harness.pop(keep, batch=1)
    await harness.store.queues.delete(DEFAULT_TENANT, drop.name)
    assert (await harness.ack(taken)).state == "ok"
    assert await harness.drain(keep) == ["b"]


async def test_one_call_stores_for_the_living_and_reports_the_deleted(harness: Harness) -> None:
    keep, drop = await harness.queue(), await harness.queue()
    slices = [
        harness.slice(queue, await harness.partition(queue, name), [name])
        for queue, name in ((keep, "a"), (drop, "b"), (keep, "c"))
    ]
    await harness.store.queues.delete(DEFAULT_TENANT, drop.name)
    results = await harness.store.messages.push(slices)
    assert isinstance(results[1], Gone)
    # A slice next to a deleted one may need another attempt, but is never half-stored.
    for index in (0, 2):
        if isinstance(results[index], Gone):
            [results[index]] = await harness.store.messages.push([slices[index]])
    assert sorted(await harness.drain(keep)) == ["a", "c"]


async def test_many_queues_and_partitions_are_found_or_made_in_one_step(harness: Harness) -> None:
    old = await harness.queue()
    group = await harness.group(old)
    await harness.partition(old, "there")
    names = [harness.name("new") for _ in range(3)]
    queues = harness.store.queues
    assert await queues.ensure_all(DEFAULT_TENANT, [*names, old.name], make=False) == [old]
    made = await queues.ensure_all(DEFAULT_TENANT, [names[0], old.name, *names])
    assert [queue.name for queue in made] == [names[0], old.name, *names[1:]]
    assert made == await queues.ensure_all(DEFAULT_TENANT, [queue.name for queue in made], make=False)
    first = made[0]
    wanted = {old.id: ["there", "a"], first.id: ["a", "b"], 2**62: ["of no queue"]}
    assert [(one.queue_id, one.name) for one in await queues.ensure_partitions_of(wanted, make=False)] == [
        (old.id, "there")
    ]
    found = await queues.ensure_partitions_of(wanted)
    assert {(one.queue_id, one.name) for one in found} == {
        *((old.id, "there"), (old.id, "a")),
        *((first.id, "a"), (first.id, "b")),
    }
    assert {one.id for one in await queues.ensure_partitions_of(wanted, make=False)} == {one.id for one in found}
    assert [lane.name for lane in await harness.store.groups.lanes(group.id)] == ["a", "there"], "each has its reader"


async def test_a_request_that_names_too_much_that_is_new_is_refused_alone(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("catalogue", "priority"):
        monkeypatch.setattr(f"fairlane.broker.{module}.NEW_NAMES_MAX", 20)
    broker, base = harness.broker, harness.name("new")

    def items(*numbers: int, priority: int | None = None) -> list[PushItem]:
        return [
            PushItem(queue=f"{base}-{number // 3}", payload=b"1", partition=f"p{number}", priority=priority)
            for number in numbers
        ]

    refused, taken = await asyncio.gather(
        broker.push_many(items(*range(21))), broker.push_many(items(*range(100, 120))), return_exceptions=True
    )
    assert isinstance(refused, InvalidRequest)
    assert "at most 20" in str(refused)
    assert "create 21" in str(refused)
    assert isinstance(taken, list)
    assert {outcome.status for outcome in taken} == {"queued"}
    with pytest.raises(InvalidRequest, match="at most 20"):
        await broker.push_many(items(*range(21), priority=3))
    assert await harness.store.queues.get(DEFAULT_TENANT, f"{base}-0") is None, "nothing of it was made"
    harness.broker._engine.catalogue.forget_all()
    again = await broker.push_many(items(*range(100, 120), *range(5)))
    assert {outcome.status for outcome in again} == {"queued"}, "what is there is not new, whoever knows it"


async def test_options_made_from_others_than_are_in_force_change_nothing(harness: Harness) -> None:
    """Changing one option reads and writes all options, so two concurrent changes could undo each other."""
    read = await harness.queue(retry_limit=5)
    theirs = await harness.configure(read, retry_limit=5, lease_seconds=7)
    with pytest.raises(OptionsChanged, match="changed meanwhile"):
        await harness.store.queues.configure(
            read.tenant, read.name, queue_options(retry_limit=9), namespace="", task="", before=read.options
        )
    assert await harness.store.queues.get(read.tenant, read.name) == theirs
    mine = queue_options(retry_limit=9, lease_seconds=7)
    again = await harness.store.queues.configure(
        read.tenant, read.name, mine, namespace="", task="", before=theirs.options
    )
    assert again.options == mine
    await harness.store.queues.delete(read.tenant, read.name)
    with pytest.raises(OptionsChanged):
        await harness.store.queues.configure(read.tenant, read.name, mine, namespace="", task="", before=mine)
    assert await harness.store.queues.get(read.tenant, read.name) is None


async def test_a_queue_is_created_in_the_cell_that_its_options_name(harness: Harness) -> None:
    broker, beside, unknown = harness.broker, harness.name("beside"), harness.name("unknown")
    first, second = await harness.queue(), await harness.queue()
    for queue, name in ((first, beside), (second, f"{beside}-2")):
        made = await broker.queues.configure(name, cell=f"same-as {queue.name}")
        assert cell_of(made.id) == cell_of(queue.id)
        assert (await broker.push(name, 1)).status == "queued"
    with pytest.raises(InvalidRequest, match="there is no cell 200"):
        await broker.queues.configure(unknown, cell="200")
    assert await harness.store.queues.get(DEFAULT_TENANT, unknown) is None
