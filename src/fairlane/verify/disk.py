"""Simulated power cuts: what a disk may hold after one, from the record of `recorder.c`.

Everything that a file had when its last sync began is on the disk. Of the later writes any may be there, complete,
torn or not at all. Names and lengths are kept as a journaling file system keeps them: in order, up to a random one.
"""

from __future__ import annotations

import os
import struct
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from random import Random
from typing import NamedTuple

_HEADER = struct.Struct("<IBxHqqqq")
_MAGIC = 0x46444C52
_SECTOR_BYTES = 512
"""Unit that a disk writes completely or not at all."""
INDEX_SUFFIX = "-shm"
"""Suffix of SQLite's index of the log. SQLite builds it again after a crash, and never syncs it."""


class DiskChange(NamedTuple):
    """A change of a file, or a sync of a file or a directory."""

    kind: str
    """`c` create if it is not there, `w` write, `t` set the length, `u` unlink, `r` rename, `s` sync."""
    path: str
    offset: int
    """Place of a write, length of a file, or the length of the record when a sync began."""
    data: bytes
    """Bytes that were written, or the new name of the file."""
    at: int
    """Length of the record after this change."""
    seconds: float
    """Time of the change on the monotonic clock."""


def read_changes(record: Path) -> Iterator[DiskChange]:
    """Return the changes in a record. A change that a killed process recorded in part is left out."""
    content, at = memoryview(record.read_bytes()), 0
    while at + _HEADER.size <= len(content):
        magic, kind, path_bytes, offset, size, stored, at_ns = _HEADER.unpack_from(content, at)
        if magic != _MAGIC:
            at = bytes(content[at : at + 65536]).find(struct.pack("<I", _MAGIC), 1) + at
            continue
        begin = at + _HEADER.size + path_bytes
        end = begin + stored
        if end > len(content):
            return
        path = bytes(content[at + _HEADER.size : begin]).decode()
        data = bytes(content[begin:end]) if stored else bytes(size)
        at = end
        if not path.endswith((" (deleted)", INDEX_SUFFIX)):
            yield DiskChange(chr(kind), path, offset, data, at, at_ns / 1e9)


class SimulatedDisk:
    """The files of a machine whose power may be cut: what is certainly on the disk, and what may be."""

    def __init__(self, files: Mapping[str, bytes]) -> None:
        """Begin with files that are on the disk."""
        self._content = {number: bytearray(content) for number, content in enumerate(files.values())}
        self._names = {path: number for number, path in enumerate(files)}
        """The names on the disk. A file keeps its number when it is renamed."""
        self._live = dict(self._names)
        """The names that programs see."""
        self._renaming: list[tuple[str, str | None, int]] = []
        """Changes of names that are not on the disk: the old name, the new one or None, and the file."""
        self._pending: dict[int, list[DiskChange]] = defaultdict(list)
        self._next = len(files)

    def apply(self, change: DiskChange) -> None:
        """Apply a change. A sync makes earlier changes of its file durable."""
        path = change.path
        if change.kind == "s":
            self._sync(path, change.offset)
        elif change.kind == "u":
            if (file := self._live.pop(path, None)) is not None:
                self._renaming.append((path, None, file))
        elif change.kind == "r":
            if (file := self._live.pop(path, None)) is not None:
                self._live[change.data.decode()] = file
                self._renaming.append((path, change.data.decode(), file))
        else:
            if path not in self._live:
                self._live[path], self._next = self._next, self._next + 1
                self._renaming.append(("", path, self._live[path]))
            if change.kind != "c":
                self._pending[self._live[path]].append(change)

    def _sync(self, path: str, upto: int) -> None:
        file = self._live.get(path)
        if file is not None:
            content = self._content.setdefault(file, bytearray())
            for one in self._pending[file]:
                if one.at <= upto:
                    _change(content, one.kind, one.offset, one.data)
            self._pending[file] = [one for one in self._pending[file] if one.at > upto]
        # A journaling file system commits the changes of names in order.
        last = max(
            (
                number
                for number, (old, new, renamed) in enumerate(self._renaming, 1)
                if renamed == file or path in (os.path.dirname(old), os.path.dirname(new or ""))
            ),
            default=0,
        )
        _rename(self._names, self._renaming[:last])
        del self._renaming[:last]

    def cut(self, random: Random) -> dict[str, bytes]:
        """Return the files that are left if the power is cut now."""
        names = dict(self._names)
        _rename(names, self._renaming[: random.randint(0, len(self._renaming))])
        share = random.choice([0.0, 0.5, 0.5, 0.9, 1.0])
        return {path: self._survivor(file, share, random) for path, file in names.items()}

    def _survivor(self, file: int, share: float, random: Random) -> bytes:
        content, pending = self._content.get(file, bytearray()), self._pending.get(file, ())
        if not pending:
            return bytes(content)
        content = bytearray(content)
        lengths = random.randint(0, sum(one.kind == "t" for one in pending))
        for one in pending:
            if one.kind == "t":
                lengths -= 1
                if lengths >= 0:
                    _change(content, "t", one.offset, b"")
            elif random.random() < share:
                for offset, piece in _torn(one, random):
                    _change(content, "w", offset, piece)
        return bytes(content)

    @property
    def unsynced(self) -> int:
        """Number of changes that a cut may undo."""
        return sum(map(len, self._pending.values())) + len(self._renaming)


def _rename(names: dict[str, int], changes: Sequence[tuple[str, str | None, int]]) -> None:
    for old, new, file in changes:
        names.pop(old, None)
        if new is not None:
            names[new] = file


def _torn(change: DiskChange, random: Random) -> Sequence[tuple[int, bytes]]:
    """Return the sectors of a write that reach the disk: nearly always all of them."""
    if random.random() > 0.2:
        return [(change.offset, change.data)]
    found, at = [], 0
    while at < len(change.data):
        size = _SECTOR_BYTES - (change.offset + at) % _SECTOR_BYTES
        if random.random() < 0.5:
            found.append((change.offset + at, change.data[at : at + size]))
        at += size
    return found


def _change(content: bytearray, kind: str, offset: int, data: bytes) -> None:
    """Write to a file, or set its length to `offset`."""
    if kind == "t":
        del content[offset:]
    if len(content) < offset:
        content.extend(bytes(offset - len(content)))
    content[offset : offset + len(data)] = data


class RecordedDisk:
    """The disk of a process that runs with `environment`, as a power cut leaves it."""

    def __init__(self, library: Path, name: str, beginnings: Sequence[Path]) -> None:
        """Record the changes of the files whose paths begin with one of `beginnings`."""
        self.record = library.with_name(name)
        self.record.touch()
        self.record.chmod(0o666)
        self._beginnings = [beginning.resolve() for beginning in beginnings]
        self._before: dict[str, bytes] = {}
        self.environment = {
            "LD_PRELOAD": str(library),
            "VERIFY_RECORD": str(self.record),
            "VERIFY_RECORD_PATHS": ":".join(map(str, self._beginnings)),
        }
        self.reset()

    def reset(self) -> None:
        """Treat the current contents of the files as durable. Nothing may write to them meanwhile."""
        self._before = {str(path): path.read_bytes() for path in self.files()}
        os.truncate(self.record, 0)

    def cut(self, random: Random) -> int:
        """Replace the files by what a power cut at this moment may leave. Returns the number of unsynced changes.

        The processes that wrote them have ended.
        """
        disk = SimulatedDisk(self._before)
        for change in read_changes(self.record):
            disk.apply(change)
        self.put(disk.cut(random))
        self.reset()
        return disk.unsynced

    def put(self, files: Mapping[str, bytes]) -> None:
        """Replace the files by these."""
        for path in self.files():
            if str(path) not in files:
                path.unlink()
        for beginning in self._beginnings:
            for path in beginning.parent.glob(f"{beginning.name}*{INDEX_SUFFIX}"):
                path.unlink()
        for name, content in files.items():
            path, exists = Path(name), Path(name).exists()
            path.write_bytes(content)
            if not exists:  # as its process would have created it
                above = path.parent.stat()
                os.chown(path, above.st_uid, above.st_gid)
                path.chmod(0o600)

    def files(self) -> list[Path]:
        """Return the files that are recorded."""
        found: list[Path] = []
        for beginning in self._beginnings:
            for path in beginning.parent.glob(f"{beginning.name}*"):
                found += [path] if path.is_file() else [one for one in path.rglob("*") if one.is_file()]
        return [path for path in found if not path.name.endswith((INDEX_SUFFIX, ".lock", ".pid", ".log", ".sock"))]
