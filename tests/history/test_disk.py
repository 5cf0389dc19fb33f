"""The simulated disk keeps what was synced, and may lose or tear everything else."""

from __future__ import annotations

from random import Random

from fairlane.verify.disk import DiskChange, SimulatedDisk

FILE = "/data/queue.db"


def change(kind: str, at: int, *, path: str = FILE, offset: int = 0, data: bytes = b"") -> DiskChange:
    return DiskChange(kind, path, offset, data, at, float(at))


def cuts(disk: SimulatedDisk) -> list[dict[str, bytes]]:
    return [disk.cut(Random(seed)) for seed in range(200)]


def test_a_synced_write_survives_every_cut() -> None:
    disk = SimulatedDisk({})
    disk.apply(change("w", 10, data=b"a" * 2000))
    disk.apply(change("s", 20, offset=10))
    disk.apply(change("w", 30, offset=4096, data=b"b" * 2000))
    assert all(files[FILE][:2000] == b"a" * 2000 for files in cuts(disk))


def test_an_unsynced_write_is_kept_torn_or_lost() -> None:
    disk = SimulatedDisk({FILE: b"old" * 1000})
    disk.apply(change("w", 10, data=b"new" * 1000))
    found = {files[FILE] for files in cuts(disk)}
    assert {b"old" * 1000, b"new" * 1000} < found, "some cuts tear it"


def test_a_write_after_the_beginning_of_a_sync_is_not_on_disk() -> None:
    disk = SimulatedDisk({FILE: b"old"})
    disk.apply(change("w", 10, data=b"new"))
    disk.apply(change("s", 20, offset=5))
    assert b"old" in {files[FILE] for files in cuts(disk)}


def test_a_new_file_is_there_for_sure_only_after_a_sync_of_it_or_its_directory() -> None:
    disk = SimulatedDisk({})
    disk.apply(change("w", 10, data=b"new"))
    assert any(FILE not in files for files in cuts(disk))
    disk.apply(change("s", 20, path="/data", offset=10))
    assert all(FILE in files for files in cuts(disk))
    assert any(files[FILE] != b"new" for files in cuts(disk)), "its content is not synced with its name"


def test_an_empty_file_is_there_after_a_sync_and_is_not_emptied_by_another_open() -> None:
    disk = SimulatedDisk({"/data/old": b"old"})
    disk.apply(change("c", 10))
    disk.apply(change("c", 20, path="/data/old"))
    disk.apply(change("s", 30, path="/data", offset=20))
    assert all(files == {FILE: b"", "/data/old": b"old"} for files in cuts(disk))


def test_names_change_in_order() -> None:
    disk = SimulatedDisk({"/data/a": b"1"})
    disk.apply(change("r", 10, path="/data/a", data=b"/data/b"))
    disk.apply(change("r", 20, path="/data/b", data=b"/data/c"))
    assert {frozenset(files) for files in cuts(disk)} == {
        frozenset({"/data/a"}),
        frozenset({"/data/b"}),
        frozenset({"/data/c"}),
    }
    disk.apply(change("u", 30, path="/data/c"))
    disk.apply(change("s", 40, path="/data", offset=30))
    assert all(files == {} for files in cuts(disk))


def test_a_shorter_file_keeps_its_old_length_until_a_sync() -> None:
    disk = SimulatedDisk({FILE: b"12345678"})
    disk.apply(change("t", 10, offset=4))
    assert {files[FILE] for files in cuts(disk)} == {b"12345678", b"1234"}
    disk.apply(change("s", 20, offset=10))
    assert {files[FILE] for files in cuts(disk)} == {b"1234"}
