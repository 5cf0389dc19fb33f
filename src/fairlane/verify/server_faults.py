"""The faults of PostgreSQL and of the connections to it. Importing this module registers them."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import time

from fairlane.errors import StoreUnavailable
from fairlane.verify.faults import CALLS_MAX, CLOCK_STEPS_SECONDS
from fairlane.verify.nemesis import FaultTargets, fault
from fairlane.verify.processes import CLI, own_environment
from fairlane.verify.proxy import LinkFaults
from fairlane.verify.sql_snapshot import end_sessions
from fairlane.verify.standbys import Standbys

MOVE_SECONDS_MAX = 60.0
UNMOVED = (".parts", ".ends", ".staged")
"""Queues that stay: two are tied to each other, and programs enqueue into the third in its cell."""


@fault("server")
async def terminate_sessions(on: FaultTargets) -> None:
    """Terminate all sessions of brokers in the database."""
    target = on.server()
    with contextlib.suppress(StoreUnavailable):
        await end_sessions(target.url, only_cancel=False)


@fault("server")
async def cancel_statements(on: FaultTargets) -> None:
    """Cancel the statements of brokers again and again, also during COMMIT."""
    target = on.server()
    for _ in range(on.random.randint(5, 30)):
        with contextlib.suppress(StoreUnavailable):
            await end_sessions(target.url, only_cancel=True)
        await asyncio.sleep(on.random.uniform(0.01, 0.2))


@fault("server")
async def late_commits(on: FaultTargets) -> None:
    """Freeze single backends for up to 50 ms, so that transactions that began first commit last."""
    target = on.server()
    ends_at = time.monotonic() + on.random.uniform(1.0, 5.0)
    while time.monotonic() < ends_at:
        backends = target.server.backends()
        chosen = on.random.sample(backends, min(len(backends), on.random.randint(1, 3)))
        for pid in chosen:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGSTOP)
        await asyncio.sleep(on.random.uniform(0.005, 0.05))
        for pid in chosen:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
        await asyncio.sleep(0.01)


@fault("server")
async def freeze_server(on: FaultTargets) -> None:
    """Freeze PostgreSQL for up to 5 s: it keeps its connections and answers nothing."""
    target = on.server()
    with target.server.frozen():
        await on.wait()


@fault("server")
async def crash_server(on: FaultTargets) -> None:
    """Crash PostgreSQL as an immediate shutdown does, and let it recover."""
    await _crash(on, signal.SIGQUIT)


@fault("server")
async def kill_server(on: FaultTargets) -> None:
    """Kill the postmaster with SIGKILL, and start it again."""
    await _crash(on, signal.SIGKILL)


async def _crash(on: FaultTargets, number: signal.Signals) -> None:
    target = on.server()
    await target.server.crash(number)
    await on.wait()
    await target.server.revive()


@fault("server")
async def cut_store(on: FaultTargets) -> None:
    """Cut the brokers from PostgreSQL: reset their connections, and refuse or swallow new ones."""
    target = on.server()
    silent = on.random.random() < 0.5
    target.back.inject(LinkFaults(black_hole=silent, refusing=not silent))
    target.back.cut()
    await on.wait(8.0)
    target.back.heal()
    target.back.cut()


@fault("server")
async def lose_commits(on: FaultTargets) -> None:
    """Forward statements to PostgreSQL and drop the answers, so that brokers do not know what was committed."""
    target = on.server()
    target.back.inject(LinkFaults(drop_answers=on.random.choice([0.02, 0.1, 0.3])))
    await on.wait()
    target.back.heal()


@fault("server preload")
async def fill_disk_of_server(on: FaultTargets) -> None:
    """Fill the disk of PostgreSQL, which may panic and stay down until somebody starts it."""
    target = on.server()
    target.preload.fill_disk(True)
    await on.wait()
    target.preload.fill_disk(False)
    await target.server.revive()


@fault("server preload")
async def step_clock_of_server(on: FaultTargets) -> None:
    """Step the clock of PostgreSQL by up to an hour in either direction, and back."""
    target = on.server()
    target.preload.step_clock(on.random.choice(CLOCK_STEPS_SECONDS))
    await on.wait()
    target.preload.step_clock(0)


@fault("server preload")
async def kill_server_at_call(on: FaultTargets) -> None:
    """Kill the process of PostgreSQL that makes the nth write, sync or answer, which restarts the server."""
    target = on.server()
    target.preload.kill_at(on.random.randint(1, 10 * CALLS_MAX))
    await on.wait()
    target.preload.heal()
    await target.server.revive()


@fault("server preload")
async def fail_disk_of_server(on: FaultTargets) -> None:
    """Fail writes and syncs of PostgreSQL with EIO, for which it panics and recovers."""
    target = on.server()
    target.preload.fail_at(on.random.randint(1, CALLS_MAX), on.random.choice([1, 1, 3]))
    await on.wait()
    target.preload.heal()
    await target.server.revive()


@fault("server preload")
async def cut_power_of_server(on: FaultTargets) -> None:
    """Cut the power of PostgreSQL: writes that it had not synced are lost, torn or kept at random."""
    target = on.server()
    await target.server.crash(signal.SIGKILL)
    await asyncio.to_thread(target.disk.cut, on.random)
    await target.server.revive()


@fault("server preload")
async def cut_power_while_buffering(on: FaultTargets) -> None:
    """Cut a broker from PostgreSQL, so that its journal takes the pushes, and then cut its power."""
    target = on.server()
    target.back.inject(LinkFaults(refusing=True))
    target.back.cut()
    await on.wait()
    number = on.random.randrange(len(on.brokers))
    await on.brokers[number].kill()
    await asyncio.to_thread(on.libraries[number].disk.cut, on.random)
    target.back.heal()
    await on.brokers[number].start()


@fault("cells")
async def move_queue(on: FaultTargets) -> None:
    """Move a queue to the other cell, kill the move at random, and repeat or undo it."""
    moved = on.random.choice([queue for queue in on.queues if not queue.endswith(UNMOVED)])
    words = [moved, "--to", str(on.random.randrange(len(on.servers)))]
    await _move(on, words, on.random.uniform(0.5, 5.0) if on.random.random() < 0.7 else MOVE_SECONDS_MAX)
    await _move(on, [moved, "--abort"] if on.random.random() < 0.5 else words, MOVE_SECONDS_MAX)


async def _move(on: FaultTargets, words: list[str], seconds: float) -> None:
    """Run `fairlane cluster move-queue`, and kill it after this time."""
    command = (*CLI, "cluster", "move-queue", *words, "--store", on.servers[0].broker_url)
    process = await asyncio.create_subprocess_exec(
        *command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=own_environment({})
    )
    try:
        await asyncio.wait_for(process.wait(), seconds)
    except TimeoutError:
        process.kill()
        await process.wait()


@fault("server")
async def fail_over(on: FaultTargets) -> None:
    """Cut two synchronous standbys from a primary, cancel commits that wait for them, kill it, and promote one."""
    target = on.server()
    standbys = Standbys(target.server.postgres, 2)
    promoted = None
    try:
        await standbys.start()
        await on.wait(2.0)
        for number in on.random.sample(range(2), 2):
            standbys.disconnect(number)
            await on.wait(1.0)
        with contextlib.suppress(StoreUnavailable):
            await end_sessions(target.url, only_cancel=True)
        await on.wait(1.0)
        await target.server.crash(signal.SIGKILL)
        promoted = await standbys.promote()
        target.back.target = standbys.socket(promoted)
        target.back.cut()
        await on.wait()
    finally:
        if promoted is not None:
            await standbys.replace_primary(promoted)
        await standbys.end()
        target.back.target = target.server.socket
        target.back.cut()
        if promoted is not None and target.libraries is not None:
            await asyncio.to_thread(target.disk.reset)
        await target.server.revive()
