"""Bugs that a run of `fairlane verify` must find. Each is switched on in a copy of the package."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import fairlane

Edit = tuple[str, str, str]
"""A file of the package, a piece of its text, and the text in its place."""
RUN = "from fairlane.cli.main import main; main()"
SECONDS_MAX = 400
_ASYNC_COMMIT = '"synchronous_commit": "off",\n            "wal_writer_delay": "10s",\n            "port": "5432",'


@dataclass(frozen=True)
class SeededBug:
    """A bug, the faults that reveal it, and promises. It breaks at least one of them."""

    name: str
    does: str
    promise: str
    edits: tuple[Edit, ...]
    faults: str = "none"
    store: str = "sqlite"
    seconds: int = 15
    """Time of the faults. Bugs that show only in a short moment take longer."""


BUGS = (
    SeededBug(
        "normal_sync",
        "SQLite runs with `synchronous=NORMAL`",
        "G1",
        (
            ("store/sqlite/connection.py", 'db.pragma("synchronous", "full")', 'db.pragma("synchronous", "normal")'),
            ("store/sqlite/connection.py", '("synchronous", 2)', '("synchronous", 1)'),
        ),
        "cut_power_of_broker",
    ),
    SeededBug(
        "no_sync",
        "SQLite runs with `synchronous=OFF`",
        "G1 G11",
        (
            ("store/sqlite/connection.py", 'db.pragma("synchronous", "full")', 'db.pragma("synchronous", "off")'),
            ("store/sqlite/connection.py", '("synchronous", 2)', '("synchronous", 0)'),
        ),
        "cut_power_of_broker",
    ),
    SeededBug(
        "lying_disk",
        "the disk reports a sync as done and does nothing",
        "G1 G11",
        (
            (
                "verify/recorder.c",
                "if (result == 0)\n        synced(fd, upto);",
                "if (result == 0 && upto < 0)\n        synced(fd, upto);",
            ),
        ),
        "cut_power_of_broker",
    ),
    SeededBug(
        "asynchronous_commit",
        "PostgreSQL runs with `synchronous_commit=off`",
        "G1",
        (
            ("store/postgres/embedded.py", '"port": "5432",', _ASYNC_COMMIT),
            ("store/postgres/doctor.py", '("on", "remote_apply",', '("on", "off", "remote_apply",'),
        ),
        "crash_server,cut_power_of_server",
        "postgres",
    ),
    SeededBug(
        "asynchronous_standby",
        "commits do not wait for a standby",
        "G1",
        (
            ("verify/standbys.py", "'ANY 1 (*)'", "''"),
            ("verify/standbys.py", "sync_state = 'quorum'", "sync_state = 'async'"),
        ),
        "fail_over",
        "postgres",
    ),
    SeededBug(
        "unreplicated_commit",
        "a commit whose wait for a standby was cancelled is answered as done",
        "G1",
        (("store/postgres/driver.py", "            UNREPLICATED.add(self)", "            pass"),),
        "fail_over",
        "postgres",
    ),
    SeededBug(
        "unsynced_journal",
        "a 202 is answered before its journal is on disk",
        "G1",
        (("store/journal/files.py", "make_durable(db)", 'make_durable(db)\n        db.pragma("synchronous", "off")'),),
        "cut_power_while_buffering",
        "postgres",
    ),
    SeededBug(
        "early_answer",
        "a push is answered before its commit",
        "G1",
        (
            (
                "store/sqlite/writer.py",
                'try:\n            db.execute("commit")',
                "self._call(_deliver, done)\n        import time\n\n        time.sleep(0.03)\n"
                '        try:\n            db.execute("commit")',
            ),
        ),
        "kill_broker",
    ),
    SeededBug(
        "swallowed_error",
        "a commit that failed is answered as done",
        "G1",
        (
            (
                "store/sqlite/writer.py",
                "return self._commit_failed(jobs, error)",
                "self._commit_failed(jobs, error)\n            return done",
            ),
        ),
        "fail_disk_of_broker,fill_disk_of_broker",
    ),
    SeededBug(
        "changed_payload",
        "a digit of a stored message changes",
        "G2",
        (
            (
                "store/sqlite/push.py",
                "body = fragments[0]\n",
                'body = fragments[0].replace(b"padding\\":\\"a", b"padding\\":\\"b")\n',
            ),
        ),
    ),
    SeededBug(
        "no_deduplication",
        "a transactionId that is known is stored again",
        "G3",
        (("store/sqlite/push.py", "elif slice.options.dedup_seconds and (", "elif not slice and ("),),
        "drop_answers",
    ),
    SeededBug(
        "overtaken_journal",
        "a push is stored while earlier ones of its partition wait in the journal",
        "G4",
        (
            (
                "broker/deferral/write_router.py",
                "if straight and writer.version() == writer.empty_at:",
                "if straight:",
            ),
            ("store/postgres/functions/push.sql", "IF 0 <> ANY (v_open) THEN", "IF false THEN"),
        ),
        "cut_store",
        "postgres",
    ),
    SeededBug(
        "skipping_ack",
        "an ack of a part of a batch finishes the whole batch",
        "G5",
        (("store/sqlite/ack.py", "after = max(before, min(ack.done[0][1], limit))", "after = limit"),),
    ),
    SeededBug(
        "lost_attached_acks",
        "an ack and pop that finds no messages loses its acks",
        "G7",
        (
            (
                "store/sqlite/messages.py",
                "(ack_all(db, now, acks), pop(db, now, call, cache))",
                '(db.execute("savepoint a"), ack_all(db, now, acks), found := pop(db, now, call, cache), '
                'any(found.lanes) or db.execute("rollback to a"))[1:3]',
            ),
        ),
    ),
    SeededBug(
        "early_expiry",
        "a lease can be taken over a second before it ends",
        "G6",
        (
            (
                "store/sqlite/messages.sql",
                "where c.group_id = ? and c.ready_at <= ? and p.id = c.partition_id",
                "where c.group_id = ? and c.ready_at <= ? + 1000000 and p.id = c.partition_id",
            ),
        ),
    ),
    SeededBug(
        "zombie_acks",
        "an ack under a lost lease moves the cursor",
        "G6",
        (
            (
                "store/sqlite/ack.py",
                "if ack.token is not None and lease != ack.token.bytes:",
                "if ack.token is None and lease is not None:",
            ),
        ),
        "freeze_clients",
    ),
    SeededBug(
        "transaction_in_parts",
        "the acks of a transaction are committed before its pushes",
        "G8 G14",
        (
            (
                "store/sqlite/messages.py",
                "pushed = [*push(db, now, slices)",
                'db.execute("release transact")\n    db.execute("commit")\n    import time\n\n    time.sleep(0.05)\n'
                '    db.execute("begin immediate")\n    db.execute("savepoint transact")\n'
                "    pushed = [*push(db, now, slices)",
            ),
        ),
        "kill_broker",
        seconds=40,
    ),
    SeededBug(
        "early_dead_letter",
        "a message is given up one attempt too early",
        "G10",
        (("store/sqlite/ack.py", "if attempts > (self", "if attempts >= (self"),),
    ),
    SeededBug(
        "dead_letter_in_parts",
        "the cursor moves past a failed message before that is a dead letter",
        "G10",
        (
            (
                "store/sqlite/ack.py",
                "dead_letter(self.db, lane, nack.position, self.now, error=nack.error, traceback=nack.traceback)\n"
                "                advance(self.db, lane, nack.position + 1, self.options)\n",
                "advance(self.db, lane, nack.position + 1, self.options)\n"
                "                save(self.db, lane)\n"
                '                self.db.execute("commit")\n'
                "                import time\n\n"
                "                time.sleep(0.1)\n"
                '                self.db.execute("begin immediate")\n'
                "                dead_letter(self.db, lane, nack.position, self.now, error=nack.error)\n",
            ),
        ),
        "kill_broker",
        seconds=30,
    ),
    SeededBug(
        "endless_lease",
        "a lease does not end by itself",
        "G11",
        (("store/sqlite/pop.py", "ends_at = now + seconds * 1_000_000", "ends_at = now + seconds * 10**9"),),
    ),
    SeededBug(
        "ignored_limit",
        "a pop does not count the messages that run",
        "G13",
        (
            (
                "store/sqlite/limited_pop.py",
                "allowed = allowance(db, now, call.group_id, options).allowed",
                "allowed = None",
            ),
        ),
    ),
    SeededBug(
        "ignored_rate",
        "a delivery does not count for the rate",
        "G13",
        (("store/sqlite/limited_pop.py", "if options.rate:\n            db", "if not options:\n            db"),),
    ),
    SeededBug(
        "ignored_running",
        "a unique push ignores a message that is handled",
        "G15",
        (
            (
                "store/families/unique_keys.py",
                'return unique == "while_running" or not self.running',
                "return not self.running",
            ),
        ),
    ),
    SeededBug(
        "clear_payload",
        "payloads of an encrypted queue are stored in clear",
        "G16",
        (
            (
                "store/sqlite/messages.py",
                "if self._database.codec.always or [part for part in slices if part.options.encryption_enabled]:",
                "if self._database.codec.always:",
            ),
        ),
    ),
    SeededBug(
        "early_callback",
        "the callback of a fan-in is pushed while a part is open",
        "G14",
        (
            (
                "store/families/fan_ins.sql",
                "WHEN k.committed > p.position THEN 'completed'",
                "WHEN k.lease_end > p.position THEN 'completed'",
            ),
        ),
    ),
)


def seeded(bug: SeededBug, directory: Path) -> Path:
    """Copy the package into a directory, switch the bug on there, and return the directory for PYTHONPATH."""
    package = Path(fairlane.__file__).parent
    shutil.copytree(package, directory / "fairlane", ignore=shutil.ignore_patterns("__pycache__"))
    for name, old, new in bug.edits:
        file = directory / "fairlane" / name
        text = file.read_text()
        assert old in text, f"{name} has changed: {old!r} is not there any more"
        file.write_text(text.replace(old, new))
    return directory


def run(bug: SeededBug, directory: Path, seed: int) -> subprocess.CompletedProcess[str]:
    """Run `fairlane verify` with the bug, and return its result."""
    directory.mkdir()
    path = seeded(bug, directory / "copy")
    store = f"sqlite:///{directory}/queue.db" if bug.store == "sqlite" else bug.store
    command = [sys.executable, "-P", "-c", RUN, "verify", "--json", "--store", store, "--seed", str(seed)]
    command += ["--minutes", str(bug.seconds / 60), "--faults", bug.faults, "--report", str(directory / "report.html")]
    environment = os.environ | {"PYTHONPATH": str(path)}
    return subprocess.run(
        command, capture_output=True, text=True, timeout=SECONDS_MAX - 20, check=False, env=environment
    )
