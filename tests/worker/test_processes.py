"""Worker processes as users run them: several at once, killed, stopped, frozen, and disconnected from their broker."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from fairlane import Client, PushItem
from tests.broker_process import FAIRLANE, BrokerProcess
from tests.until import until
from tests.worker.conftest import until_drained
from tests.worker.processes import Workshop, workshop

# Starting processes and reading their output blocks the loop for a moment.
pytestmark = pytest.mark.may_block_loop


@pytest.fixture
def shop(tmp_path: Path, queue: str, broker: BrokerProcess) -> Iterator[Workshop]:
    with workshop(tmp_path, queue, broker.url) as found:
        yield found


async def push(client: Client, queue: str, count: int, *, partitions: int = 100, more: str = "") -> None:
    items = [
        PushItem(queue=queue, payload=f'{{"id":{n}{more}}}'.encode(), partition=f"p{n % partitions}")
        for n in range(count)
    ]
    await client.push_many(items)


async def ended(process: subprocess.Popen[str], *, seconds: float = 60.0) -> int:
    await until(lambda: process.poll() is not None, seconds=seconds)
    return int(process.returncode)


@pytest.mark.parametrize("workers", [5, 10])
async def test_each_of_a_thousand_jobs_is_executed_once_by_some_worker(
    client: Client, shop: Workshop, workers: int
) -> None:
    for _ in range(workers):
        shop.start()
    await push(client, shop.queue, 1000, more=',"seconds":0.001')
    await until(lambda: len(shop.done()) == 1000, seconds=100)
    await until_drained(client, shop.queue)
    # One that is slow to start found nothing to do, and does not handle signals before it says that it is there.
    await until(lambda: all("worker of" in shop.log(process) for process in shop.processes), seconds=100)
    for process in shop.processes:
        process.terminate()
    assert [await ended(process) for process in shop.processes] == [0] * workers
    assert set(shop.done().values()) == {1}
    assert len(shop.notes("began")) == 1000


async def test_a_job_whose_worker_was_killed_is_done_by_another_after_the_lease(client: Client, shop: Workshop) -> None:
    await push(client, shop.queue, 1, more=',"seconds":0.5')
    first = shop.start(lease_seconds=1)
    await until(lambda: bool(shop.notes("began")))
    first.kill()
    shop.start(lease_seconds=1)
    await until(lambda: bool(shop.notes("done")))
    assert [(note.what, note.pid == first.pid, note.attempt) for note in shop.notes()] == [
        ("began", True, 1),
        ("began", False, 2),
        ("done", False, 2),
    ]
    await until_drained(client, shop.queue)


async def test_stopped_is_the_last_line_of_a_worker(client: Client, shop: Workshop) -> None:
    await push(client, shop.queue, 5, more=',"poison":true')
    process = shop.start()
    await until(lambda: len(shop.notes("began")) >= 5)
    process.terminate()
    assert await ended(process) == 0
    last = shop.log(process).splitlines()[-1]
    assert last.endswith(" stopped")
    assert "more like this" in shop.log(process)


async def test_a_worker_that_was_frozen_past_its_lease_cancels_its_handler_and_its_ack_is_refused(
    client: Client, shop: Workshop
) -> None:
    """A coroutine handler can be cancelled. A plain function cannot, so its ack is refused."""
    queues = (shop.queue, f"{shop.queue}.plain")
    for queue, seconds in zip(queues, (60, 0.5), strict=True):
        # A poll of the frozen worker may be given the message again before another's is.
        await client.queues.configure(queue, retry_limit=20)
        await push(client, queue, 1, more=f',"first_seconds":{seconds}')
    frozen = shop.start(lease_seconds=1)
    await until(lambda: len(shop.notes("began")) == 2)
    os.kill(frozen.pid, signal.SIGSTOP)
    other = shop.start(lease_seconds=1)
    await until(lambda: len(shop.notes("done")) == 2)
    for queue in queues:
        await until_drained(client, queue)
    os.kill(frozen.pid, signal.SIGCONT)

    def in_vain() -> int:
        return sum(note.pid == frozen.pid for note in shop.notes("done"))

    await until(lambda: bool(shop.notes("cancelled")) and in_vain() > 0)
    frozen.terminate()
    assert await ended(frozen) == 0
    assert [(note.pid, note.attempt) for note in shop.notes("cancelled")] == [(frozen.pid, 1)]
    # What it was given again before it was frozen it may finish while it stops, past a lease that it knows has ended.
    assert 1 <= len(re.findall(r"ack of \S+ of queue \S+ refused", shop.log(frozen))) <= in_vain()
    # Similar lines are logged once, so the line of either lease may stand for both.
    assert re.search(r"lost lease \S+: \d messages of queue", shop.log(frozen))
    elsewhere = [note.attempt for note in shop.notes("done") if note.pid == other.pid]
    assert len(elsewhere) == 2
    assert min(elsewhere) > 1


async def test_a_worker_that_is_told_to_stop_under_load_loses_nothing_and_charges_nothing(
    client: Client, shop: Workshop
) -> None:
    await client.queues.configure(shop.queue, retry_limit=0)
    await push(client, shop.queue, 300, partitions=10, more=',"seconds":0.01')
    first = shop.start("--concurrency", "20")
    await until(lambda: len(shop.done()) > 20)
    first.terminate()
    assert await ended(first) == 0
    done_by_first = len(shop.done())
    assert 20 < done_by_first < 300
    assert len(shop.notes("began")) == len(shop.notes("done")), "what runs is finished"
    shop.start()
    await until(lambda: len(shop.done()) == 300)
    await until_drained(client, shop.queue)
    assert set(shop.done().values()) == {1}
    assert {note.attempt for note in shop.notes()} == {1}
    assert not await client.dead_letters.page(shop.queue)


async def test_what_does_not_finish_in_time_is_given_back_without_a_charge(client: Client, shop: Workshop) -> None:
    await push(client, shop.queue, 1, more=',"seconds":60')
    first = shop.start("--grace", "0.1")
    await until(lambda: bool(shop.notes("began")))
    first.terminate()
    assert await ended(first) == 0
    assert [note.what for note in shop.notes()] == ["began", "cancelled"]
    [message] = await client.pop(shop.queue, wait=5)
    assert message.failed_attempts == 0


async def test_a_second_signal_ends_a_worker_at_once(client: Client, shop: Workshop) -> None:
    await push(client, shop.queue, 1, more=',"seconds":60')
    first = shop.start()
    await until(lambda: bool(shop.notes("began")))
    first.terminate()
    await until(lambda: "stopping" in shop.log(first))
    first.terminate()
    assert await ended(first) == 128 + signal.SIGTERM


async def test_poison_is_a_dead_letter_after_its_attempts_and_blocks_nobody(client: Client, shop: Workshop) -> None:
    await client.queues.configure(shop.queue, retry_limit=2)
    await push(client, shop.queue, 1, more=',"poison":true')
    await push(client, shop.queue, 50, partitions=50)
    shop.start()
    await until_drained(client, shop.queue)
    [letter] = await client.dead_letters.page(shop.queue)
    assert (letter.error, letter.attempts) == ("ValueError: poison", 3)
    assert len(shop.done()) == 50


async def test_workers_outlast_a_broker_that_is_killed_and_started_again(
    tmp_path: Path, queue: str, own_broker: BrokerProcess
) -> None:
    async with Client(own_broker.url) as client:
        with workshop(tmp_path, queue, own_broker.url) as shop:
            await push(client, queue, 400, partitions=20, more=',"seconds":0.01')
            processes = [shop.start(lease_seconds=2) for _ in range(2)]
            await until(lambda: len(shop.done()) > 20)
            own_broker.kill()
            await asyncio.sleep(0.2)
            own_broker.start()
            await until(lambda: len(shop.done()) == 400)
            await until_drained(client, queue)
            for process in processes:
                process.terminate()
            assert [await ended(process) for process in processes] == [0, 0]
            assert not await client.dead_letters.page(queue)
            assert shop.done().total() < 440, "what was done before the outage is not done again, but for a few"


@pytest.mark.parametrize(
    ("target", "said"),
    [("tests.worker.jobs", "use module:app"), ("nowhere:app", "was not found"), ("tests.worker.jobs:Job", "not a")],
)
def test_a_target_that_is_no_app_is_refused(target: str, said: str) -> None:
    run = subprocess.run([FAIRLANE, "worker", target], capture_output=True, text=True, timeout=100)
    assert run.returncode == 2
    assert said in run.stderr


async def test_a_supervisor_replaces_a_worker_that_dies_and_passes_the_signal_on(
    client: Client, shop: Workshop
) -> None:
    supervisor = shop.start("--processes", "2")

    async def pids() -> set[int]:
        return {one.pid for one in await client.workers.all() if any(part.queue == shop.queue for part in one.queues)}

    async def are_two() -> bool:
        return len(await pids()) == 2

    await until(are_two)
    victim = min(await pids())
    await push(client, shop.queue, 20, more=',"seconds":0.01')
    await until(lambda: len(shop.done()) == 20)
    os.kill(victim, signal.SIGKILL)
    await until(lambda: "exited with code -9; restarting" in shop.log(supervisor))
    await until(lambda: shop.log(supervisor).count("started, process id") == 3)
    started = {int(pid) for pid in re.findall(r"started, process id (\d+)", shop.log(supervisor))} - {victim}

    async def has_another() -> bool:
        return started <= await pids()

    await until(has_another)
    await push(client, shop.queue, 1, more=',"seconds":0.5')
    await until(lambda: len(shop.notes("began")) == 21)
    supervisor.terminate()
    assert await ended(supervisor) == 0
    assert len(shop.notes("done")) == 21, "what runs is finished"
    for pid in started:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


async def test_worker_processes_end_with_their_supervisor(client: Client, shop: Workshop) -> None:
    supervisor = shop.start("--processes=2", "--grace", "5")
    await until(lambda: shop.log(supervisor).count("worker of tests.worker.jobs:app") == 2)
    started = [int(pid) for pid in re.findall(r"started, process id (\d+)", shop.log(supervisor))]
    supervisor.kill()

    def gone(pid: int) -> bool:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"

    await until(lambda: all(map(gone, started)))


def test_a_plan_is_printed_and_nothing_runs(shop: Workshop) -> None:
    planned = shop.start("--plan")
    assert planned.wait(60) == 0
    assert "Every queue has the declared options." in shop.log(planned)
    refused = shop.start("--processes", "2", "--watch")
    assert refused.wait(60) == 2
    assert "--watch shows a single process" in shop.log(refused)
