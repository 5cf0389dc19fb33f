"""Thousands of simulated power cuts: `python -m tests.campaign.power_cuts --cuts 1000`.

A broker on SQLite serves the traffic of `fairlane verify` for some seconds, while each of its writes and syncs is
recorded. Afterwards the power is cut at random moments of that record, mostly just before or after a sync. Each time
Fairlane opens what is left of the files, and the result is compared with what the clients had been told by then.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from random import Random
from typing import NamedTuple, TypeVar

import apsw
import msgspec

from fairlane.errors import FairlaneError
from fairlane.store.sqlite.connection import open_writer
from fairlane.verify import checks, feature_checks
from fairlane.verify.deployment import VerifyPlan, start_deployment
from fairlane.verify.disk import DiskChange, SimulatedDisk, read_changes
from fairlane.verify.history import AckRecord, FanInRecord, LaneName, PushRecord, RecordedHistory, read_history
from fairlane.verify.rules import OPTIONS, RULES
from fairlane.verify.sql_snapshot import SqlSnapshot, read_snapshot
from fairlane.verify.traffic import configure

SECONDS = 8.0
"""Time of the traffic that is recorded."""
FULL_CHECK_EVERY = 10
"""Cuts from one complete check of the file's structure to the next."""
_CHECKS = (
    *(checks.lost, checks.doubled, checks.invented, checks.out_of_order, checks.torn_transactions),
    feature_checks.torn_fan_ins,
)
Record = TypeVar("Record", PushRecord, AckRecord, FanInRecord)


class PowerCuts(NamedTuple):
    """The result of many cuts of one recording."""

    seed: int
    cuts: int
    changes: int
    syncs: int
    undone: int
    """Changes that were not synced, and that a cut could therefore undo."""
    accepted: int
    """Accepted pushes before each cut, of all cuts."""
    violations: list[str]


class _Recording(NamedTuple):
    """The changes of the files and the history of the clients until the power is cut."""

    changes: list[DiskChange]
    history: RecordedHistory
    prefix: str
    store: Path


async def cut(seed: int, cuts: int, seconds: float = SECONDS) -> PowerCuts:
    """Record traffic, cut the power at many moments, and check what is left."""
    with tempfile.TemporaryDirectory(prefix="fairlane-cuts-") as name:
        recording = await _record(Path(name), seed, seconds)
        return await _cut(recording, Path(name) / "cut", seed, cuts)


async def _record(directory: Path, seed: int, seconds: float) -> _Recording:
    store = directory / "queue.db"
    deployment_directory = directory / "deployment"
    deployment_directory.mkdir()
    async with start_deployment(
        VerifyPlan(store=f"sqlite:///{store}", seconds=seconds, seed=seed), deployment_directory
    ) as deployment:
        await configure(deployment.client, "0")
        await deployment.targets.clients.start()
        await asyncio.sleep(seconds)
        await deployment.targets.clients.kill()
        await deployment.targets.brokers[0].kill()
        history = read_history(deployment.targets.clients.histories)
        changes = [
            one for one in read_changes(deployment.targets.libraries[0].disk.record) if one.path.startswith(str(store))
        ]
        return _Recording(changes, history, deployment.client.named(""), store)


async def _cut(recording: _Recording, directory: Path, seed: int, cuts: int) -> PowerCuts:
    random, found, undone, accepted = Random(seed), list[str](), 0, 0
    number = 0
    for number, (moment, disk) in enumerate(_moments(recording.changes, random, cuts), 1):
        undone += disk.unsynced
        known = _known_at(recording.history, moment)
        accepted += sum(push.fate in ("done", "deferred") for push in known.pushes)
        file = directory / recording.store.name
        try:
            await asyncio.to_thread(_recover, file, disk.cut(random), number % FULL_CHECK_EVERY == 0)
            snapshot = await read_snapshot([f"sqlite:///{file}"], recording.prefix)
        except (FairlaneError, apsw.Error, ValueError) as error:
            found.append(f"cut {number}: the file cannot be opened: {error}")
        else:
            found += [f"cut {number}: {one}" for one in _violations(known, snapshot)]
    syncs = sum(change.kind == "s" for change in recording.changes)
    return PowerCuts(seed, number, len(recording.changes), syncs, undone, accepted, found)


def _moments(changes: Sequence[DiskChange], random: Random, cuts: int) -> Iterator[tuple[float, SimulatedDisk]]:
    """Yield the disk at random moments, half of them just before or after a sync."""
    syncs = [at for at, change in enumerate(changes) if change.kind == "s"]
    chosen = Counter[int]()
    for _ in range(cuts):
        near = max(0, random.choice(syncs) + random.choice([-1, 0, 0, 1])) if random.random() < 0.5 else None
        chosen[min(len(changes) - 1, near if near is not None else random.randrange(len(changes)))] += 1
    disk = SimulatedDisk({})
    for at, change in enumerate(changes):
        disk.apply(change)
        for _ in range(chosen[at]):
            yield change.seconds, disk


def _recover(file: Path, files: Mapping[str, bytes], full: bool) -> None:
    """Open what is left of the files as a broker does. Raises ValueError if the structure is damaged."""
    shutil.rmtree(file.parent, ignore_errors=True)
    file.parent.mkdir()
    for path, content in files.items():
        copy = file.parent / Path(path).name
        copy.write_bytes(content)
        copy.chmod(0o600)
    db = open_writer(str(file))
    try:
        if full and (result := db.pragma("integrity_check")) != "ok":
            raise ValueError(str(result))
    finally:
        db.close()


def _known_at(history: RecordedHistory, moment: float) -> RecordedHistory:
    """Return what clients knew at a moment. A request without an answer by then is unknown."""
    known = RecordedHistory()
    known.pushes = [_at(one, moment) for one in history.pushes if one.began < moment]
    known.acks = [_at(one, moment) for one in history.acks if one.began < moment]
    known.fan_ins = [_at(one, moment) for one in history.fan_ins if one.began < moment]
    return known


def _at(record: Record, moment: float) -> Record:
    return record if record.ended < moment else msgspec.structs.replace(record, fate="unknown")


def _violations(known: RecordedHistory, snapshot: SqlSnapshot) -> list[str]:
    # Scheduled messages are in no partition before they are due, and a replay stores a message with an id of its own.
    known.pushes = [one for one in known.pushes if one.lane.queue != "later"]
    pushed = {push.id for push in known.pushes}
    for lane, ids in snapshot.messages.items():
        if lane.queue in OPTIONS.keys() - {"later"}:
            known.log[lane] = [id for id in ids if lane.queue != "poison" or id in pushed]
    found = [violation for check in _CHECKS for violation in check(known, RULES)]
    tokens = {id.rpartition("-")[0] for lane, ids in known.log.items() if lane.queue in RULES.tokens for id in ids}
    held = [lag for (lane, _), lag in snapshot.lags.items() if lane.queue in RULES.tokens]
    if held and sum(held) != len(tokens):  # before the first pop there is no group
        found.append(f"{len(tokens)} tokens were put in, and {sum(held)} are there")
    return found + list(_unacked(known, snapshot))


def _unacked(known: RecordedHistory, snapshot: SqlSnapshot) -> Iterator[str]:
    """Yield the lanes that forgot an ack which had been answered, or that finished what nobody acked."""
    done: dict[tuple[LaneName, str], set[str]] = {}
    possible: dict[tuple[LaneName, str], set[str]] = {}
    for ack in known.acks:
        if ack.status in ("completed", "cancelled") and ack.fate != "refused":
            possible.setdefault((ack.lane, ack.group), set()).add(ack.id)
            if ack.fate == "done":
                done.setdefault((ack.lane, ack.group), set()).add(ack.id)
    for (lane, group), lag in snapshot.lags.items():
        if (lane.queue, group) not in RULES.settled or lane.queue in RULES.poisoned | RULES.deleting:
            continue
        stored = len(snapshot.messages.get(lane, ()))
        least, most = len(done.get((lane, group), ())), len(possible.get((lane, group), ()))
        if not least <= stored - lag <= most:
            yield f"{lane}: {group} finished {stored - lag} of {stored} messages; {least} to {most} were acked"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cuts", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=SECONDS)
    parser.add_argument("--store", default="sqlite", choices=["sqlite"])
    given = parser.parse_args()
    result = asyncio.run(cut(given.seed, given.cuts, given.seconds))
    sys.stdout.write(json.dumps(result._asdict(), indent=2) + "\n")
    return 1 if result.violations else 0


if __name__ == "__main__":
    sys.exit(main())
