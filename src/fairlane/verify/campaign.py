"""A run: quiet traffic, faults, healing, draining, and the checks."""

from __future__ import annotations

import asyncio
import contextlib
import os
import platform
import shutil
import signal
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

from fairlane.errors import Unavailable
from fairlane.verify import faults, server_faults
from fairlane.verify.client_process import ClientCounts
from fairlane.verify.deployment import Deployment, VerifyPlan, start_deployment
from fairlane.verify.draining import Drain
from fairlane.verify.history import RecordedHistory, read_history
from fairlane.verify.nemesis import NEEDS, FaultKind, Nemesis, choose
from fairlane.verify.promises import PromiseResult, check_promises
from fairlane.verify.rules import RULES
from fairlane.verify.sql_snapshot import SQLITE, server_version
from fairlane.verify.traffic import configure

REGISTERED = (faults, server_faults)
"""Modules that register the faults."""
QUIET_SECONDS = 4.0


class VerifyProgress(NamedTuple):
    """The progress of a run."""

    phase: str
    detail: str
    seconds_left: float
    counts: ClientCounts
    faults: dict[str, int]


class VerifyOutcome(NamedTuple):
    """The result of a run."""

    plan: VerifyPlan
    store: str
    brokers: int
    began_at: datetime
    began: float
    """The same moment on the clock of the history."""
    fault_seconds: float
    """Time of the faults, which Ctrl-C may have ended early."""
    ended: float
    promises: list[PromiseResult]
    history: RecordedHistory
    faults: dict[str, int]
    skipped: list[tuple[str, str]]
    """Faults that could not be injected here, each with what it needs."""
    versions: dict[str, str]
    directory: Path | None
    """Directory with the histories and logs. None if it was removed."""
    leftovers: bool
    """True if queues of the run are still there."""

    @property
    def violations(self) -> list[str]:
        return [violation for result in self.promises for violation in result.violations]


Notify = Callable[[VerifyProgress], None]


async def verify(plan: VerifyPlan, notify: Notify) -> VerifyOutcome:
    """Run traffic and faults on a store, and check every promise.

    Raises Conflict if others use the store, unless the plan allows it. The first Ctrl-C ends the faults early.
    """
    chosen = choose(plan.faults)
    directory = Path(tempfile.mkdtemp(prefix="fairlane-verify-"))
    keep = False
    try:
        async with start_deployment(plan, directory) as deployment:
            outcome = await _Run(plan, deployment, chosen, notify).play()
        keep = plan.keep or bool(outcome.violations)
        return outcome if keep else outcome._replace(directory=None)
    finally:
        if not keep:
            shutil.rmtree(directory, ignore_errors=True)


class _Run:
    """The phases of one run."""

    def __init__(self, plan: VerifyPlan, deployment: Deployment, chosen: Sequence[FaultKind], notify: Notify) -> None:
        self._plan = plan
        self._deployment = deployment
        self._targets = deployment.targets
        self._notify = notify
        self._phase = self._detail = ""
        self._ends_at = time.monotonic()
        self._fault_seconds = 0.0
        self._nemesis = Nemesis(deployment.targets, chosen, self._say)
        self._drain = Drain(deployment.client, self._say)

    async def play(self) -> VerifyOutcome:
        began_at, began = datetime.now(UTC), time.monotonic()
        async with self._progress():
            try:
                await self._break()
                history = await self._read()
            except Unavailable as error:  # such as a broker that does not start any more
                history = RecordedHistory(stuck=[str(error)], faults=self._nemesis.spans)
            promises = await asyncio.to_thread(check_promises, history, RULES)
            kept = self._plan.keep or any(result.violations for result in promises)
            leftovers = kept or bool(await self._drain.delete_queues())
        return VerifyOutcome(
            plan=self._plan,
            store="SQLite" if self._deployment.url.startswith(SQLITE) else "PostgreSQL",
            brokers=len(self._targets.brokers),
            began_at=began_at,
            began=began,
            fault_seconds=self._fault_seconds,
            ended=time.monotonic(),
            promises=promises,
            history=history,
            faults=dict(self._nemesis.counts),
            skipped=[(one.name, NEEDS[one.need]) for one in self._nemesis.skipped],
            versions=_versions() | await server_version(self._deployment.url),
            directory=self._deployment.directory,
            leftovers=leftovers,
        )

    async def _break(self) -> None:
        """Start the traffic, and inject faults for the duration of the plan."""
        self._enter("quiet", QUIET_SECONDS)
        await configure(self._deployment.client, "0", cells=len(self._targets.servers))
        await self._targets.clients.start()
        await asyncio.sleep(QUIET_SECONDS)
        self._enter("faults", self._plan.seconds)
        began = time.monotonic()
        await self._until_interrupted(self._nemesis.run(self._plan.seconds))
        self._fault_seconds = min(self._plan.seconds, time.monotonic() - began)

    async def _read(self) -> RecordedHistory:
        """Wait for the end of all messages, and return the history with everything that is left."""
        mended_at = time.monotonic()
        self._enter("drain", 0)
        await self._targets.clients.start_draining()
        stuck = await self._drain.finish()
        drained_at = time.monotonic()
        await self._targets.clients.stop()
        self._enter("check", 0)
        history = await asyncio.to_thread(read_history, self._targets.clients.histories)
        history.stuck, history.faults = stuck, self._nemesis.spans
        history.mended_at, history.drained_at = mended_at, drained_at
        await self._drain.read(history, [one.url for one in self._targets.servers] or [self._deployment.url])
        return history

    def _enter(self, phase: str, seconds: float) -> None:
        self._phase, self._detail, self._ends_at = phase, "", time.monotonic() + seconds
        self._report()

    def _say(self, detail: str) -> None:
        self._detail = detail
        self._report()

    def _report(self) -> None:
        left = max(0.0, self._ends_at - time.monotonic())
        self._notify(
            VerifyProgress(self._phase, self._detail, left, self._targets.clients.counts, dict(self._nemesis.counts))
        )

    @contextlib.asynccontextmanager
    async def _progress(self) -> AsyncIterator[None]:
        async def every_second() -> None:
            while True:
                self._report()
                await asyncio.sleep(1.0)

        task = asyncio.create_task(every_second())
        try:
            yield
        finally:
            task.cancel()

    async def _until_interrupted(self, work: Coroutine[Any, Any, None]) -> None:
        """Run the faults. The first Ctrl-C ends them early, and the run continues with the checks."""
        task = asyncio.create_task(work)
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGINT, task.cancel)
        try:
            await task
        except asyncio.CancelledError:
            own = asyncio.current_task()
            if own is not None and own.cancelling():
                raise
            await self._targets.mend()
        finally:
            loop.remove_signal_handler(signal.SIGINT)


def _versions() -> dict[str, str]:
    """Return the versions that a result belongs to."""
    return {
        "fairlane": version("fairlane"),
        "Python": platform.python_version(),
        "SQLite": version("apsw").rpartition(".")[0],
        "system": f"{platform.system()} {platform.release()}, {os.cpu_count()} CPUs",
    }
