"""The faults of PostgreSQL and of the connections to it. Importing this module registers them."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time

from fairlane.errors import StoreUnavailable
from fairlane.verify.census import end_sessions
from fairlane.verify.faults import CALLS_MAX, CLOCK_STEPS_SECONDS
from fairlane.verify.nemesis import FaultTargets, fault
from fairlane.verify.proxy import LinkFaults


@fault("server")
async def terminate_sessions(on: FaultTargets) -> None:
    """Terminate all sessions of brokers in the database."""
    with contextlib.suppress(StoreUnavailable):
        await end_sessions(on.url, only_cancel=False)


@fault("server")
async def cancel_statements(on: FaultTargets) -> None:
    """Cancel the statements of brokers again and again, also during COMMIT."""
    for _ in range(on.random.randint(5, 30)):
        with contextlib.suppress(StoreUnavailable):
            await end_sessions(on.url, only_cancel=True)
        await asyncio.sleep(on.random.uniform(0.01, 0.2))


@fault("server")
async def late_commits(on: FaultTargets) -> None:
    """Freeze single backends for up to 50 ms, so that transactions that began first commit last."""
    assert on.server is not None
    ends_at = time.monotonic() + on.random.uniform(1.0, 5.0)
    while time.monotonic() < ends_at:
        backends = on.server.backends()
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
    assert on.server is not None
    with on.server.frozen():
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
    assert on.server is not None
    await on.server.crash(number)
    await on.wait()
    await on.server.revive()


@fault("server")
async def cut_store(on: FaultTargets) -> None:
    """Cut the brokers from PostgreSQL: reset their connections, and refuse or swallow new ones."""
    assert on.back is not None
    silent = on.random.random() < 0.5
    on.back.inject(LinkFaults(black_hole=silent, refusing=not silent))
    on.back.cut()
    await on.wait(8.0)
    on.back.heal()
    on.back.cut()


@fault("server")
async def lose_commits(on: FaultTargets) -> None:
    """Forward statements to PostgreSQL and drop the answers, so that brokers do not know what was committed."""
    assert on.back is not None
    on.back.inject(LinkFaults(drop_answers=on.random.choice([0.02, 0.1, 0.3])))
    await on.wait()
    on.back.heal()


@fault("server preload")
async def fill_disk_of_server(on: FaultTargets) -> None:
    """Fill the disk of PostgreSQL, which may panic and stay down until somebody starts it."""
    assert on.server is not None
    assert on.server_preload is not None
    on.server_preload.fill_disk(True)
    await on.wait()
    on.server_preload.fill_disk(False)
    await on.server.revive()


@fault("server preload")
async def step_clock_of_server(on: FaultTargets) -> None:
    """Step the clock of PostgreSQL by up to an hour in either direction, and back."""
    assert on.server_preload is not None
    on.server_preload.step_clock(on.random.choice(CLOCK_STEPS_SECONDS))
    await on.wait()
    on.server_preload.step_clock(0)


@fault("server preload")
async def kill_server_at_call(on: FaultTargets) -> None:
    """Kill the process of PostgreSQL that makes the nth write, sync or answer, which restarts the server."""
    assert on.server is not None
    assert on.server_preload is not None
    on.server_preload.kill_at(on.random.randint(1, 10 * CALLS_MAX))
    await on.wait()
    on.server_preload.heal()
    await on.server.revive()


@fault("server preload")
async def fail_disk_of_server(on: FaultTargets) -> None:
    """Fail writes and syncs of PostgreSQL with EIO, for which it panics and recovers."""
    assert on.server is not None
    assert on.server_preload is not None
    on.server_preload.fail_at(on.random.randint(1, CALLS_MAX), on.random.choice([1, 1, 3]))
    await on.wait()
    on.server_preload.heal()
    await on.server.revive()
