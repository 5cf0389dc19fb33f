"""Tests of the guards that all other tests rely on."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from pathlib import Path

import asyncpg
import pytest

from tests.conftest import FreshDatabase
from tests.guards import LoopWatch
from tests.postgres import PostgresServer, running_server

pytest_plugins = ["pytester"]

ROOT = Path(__file__).parents[2]


async def test_each_server_is_the_version_it_is_named_after(
    postgres16: PostgresServer, postgres18: PostgresServer
) -> None:
    for server in (postgres16, postgres18):
        async with server.connect() as connection:
            version = await connection.fetchval("SHOW server_version")
        assert version.startswith(f"{server.major}.")


async def test_the_servers_keep_what_they_commit(postgres: PostgresServer) -> None:
    async with postgres.connect() as connection:
        for setting in ("fsync", "synchronous_commit", "full_page_writes"):
            assert await connection.fetchval(f"SHOW {setting}") == "on"
        assert await connection.fetchval("SHOW max_connections") == "200"


async def test_a_fresh_database_is_a_copy_of_its_template_and_gone_after_use(
    postgres: PostgresServer,
) -> None:
    async def fill(url: str) -> None:
        connection = await asyncpg.connect(url)
        await connection.execute("CREATE TABLE lane (name text); INSERT INTO lane VALUES ('first')")
        await connection.close()

    await postgres.make_template("harness", fill)
    await postgres.make_template("harness", fill)
    for _ in range(2):
        async with postgres.fresh_database(template="harness") as url:
            connection = await asyncpg.connect(url)
            assert await connection.fetchval("SELECT count(*) FROM lane") == 1
            await connection.execute("INSERT INTO lane VALUES ('second')")
            await connection.close()
        with pytest.raises(asyncpg.InvalidCatalogNameError):
            await asyncpg.connect(url)


async def test_a_template_that_could_not_be_filled_can_be_tried_again(postgres16: PostgresServer) -> None:
    async def fail(url: str) -> None:
        raise LookupError(url)

    for _ in range(2):
        with pytest.raises(LookupError):
            await postgres16.make_template("broken", fail)


async def test_two_fresh_databases_of_one_test_are_apart(
    postgres: PostgresServer, fresh_database: FreshDatabase
) -> None:
    assert await fresh_database(postgres) != await fresh_database(postgres)


def test_a_server_takes_settings_and_leaves_nothing_behind() -> None:
    with running_server(18, settings={"fsync": "off"}) as server:
        options = (server.directory / "data" / "postmaster.opts").read_text()
        assert "fsync=off" in options
    assert server.process.returncode == 0
    assert not server.directory.exists()


@pytest.mark.skipif(sys.platform != "linux", reason="needs Linux to end a child with its parent")
def test_a_server_does_not_outlive_a_killed_test_run() -> None:
    script = (
        "import os, signal\n"
        "from tests.postgres import running_server\n"
        "with running_server(18) as server:\n"
        "    print(server.pid, server.directory, flush=True)\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    run = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, timeout=60)
    pid, directory = run.stdout.split()
    try:
        give_up_at = time.monotonic() + 30
        while _is_running(int(pid)):
            assert time.monotonic() < give_up_at, "the server is still running"
            time.sleep(0.02)
    finally:
        subprocess.run(["rm", "-rf", directory], check=True)


def _is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (ProcessLookupError, FileNotFoundError):
        return False
    return state != "Z"


@pytest.mark.may_block_loop
def test_the_watch_names_the_line_that_blocked_the_loop() -> None:
    stalls: list[str] = []
    give_up_at = time.monotonic() + 30

    async def block() -> None:
        while not stalls and time.monotonic() < give_up_at:  # a busy machine may keep the watch from looking
            time.sleep(0.4)  # noqa: ASYNC251
            stalls.extend(watch.take_stalls())

    with LoopWatch(blocked_seconds_max=0.15).installed() as watch:
        asyncio.run(block())
    (stall,) = stalls
    assert "in block" in stall
    assert "time.sleep(0.4)" in stall


def test_the_watch_says_nothing_of_an_idle_loop() -> None:
    with LoopWatch(blocked_seconds_max=0.15).installed() as watch:
        asyncio.run(asyncio.sleep(0.4))
        assert watch.take_stalls() == []


def test_every_guard_fails_the_test_it_is_meant_for(pytester: pytest.Pytester) -> None:
    pytester.makeconftest('pytest_plugins = ["tests.guards"]')
    pytester.makepyprojecttoml(
        f"""
        [tool.pytest.ini_options]
        pythonpath = ["{ROOT}"]
        asyncio_mode = "auto"
        asyncio_default_fixture_loop_scope = "function"
        filterwarnings = ["error"]
        markers = ["may_block_loop"]
        """
    )
    pytester.makepyfile(
        """
        import asyncio, gc, threading, time, warnings
        import pytest

        def test_good():
            loops = [one for one in gc.get_objects() if isinstance(one, asyncio.BaseEventLoop)]
            assert not loops, "a test that needs no loop has none"

        async def test_good_async():
            task = asyncio.create_task(asyncio.sleep(60))
            task.cancel()

        @pytest.mark.may_block_loop
        async def test_good_blocking_by_permission():
            time.sleep(0.8)

        async def test_bad_blocking():
            time.sleep(0.8)

        def test_bad_blocking_on_its_own_loop():
            async def block():
                time.sleep(0.8)
            asyncio.run(block())

        async def test_bad_task_left():
            test_bad_task_left.task = asyncio.create_task(asyncio.sleep(60))

        async def test_bad_exception_never_retrieved():
            async def fail():
                raise ValueError("unseen")
            asyncio.create_task(fail())
            await asyncio.sleep(0.01)

        @pytest.fixture
        async def leaving():
            yield asyncio.create_task(asyncio.sleep(60))

        def test_bad_task_left_by_a_fixture(leaving):
            pass

        async def test_bad_never_awaited():
            asyncio.sleep(1)

        def test_bad_warning():
            warnings.warn("beware")

        def test_bad_thread():
            thread = threading.Thread(target=lambda: 1 / 0)
            thread.start()
            thread.join()
        """
    )
    result = pytester.runpytest_subprocess("-p", "no:cacheprovider", "-p", "no:xdist", "-rfE")
    lines = result.outlines
    spoilt = {line.split("::")[1].split()[0] for line in lines if line.startswith(("FAILED", "ERROR "))}
    assert spoilt == {
        "test_bad_blocking",
        "test_bad_blocking_on_its_own_loop",
        "test_bad_task_left",
        "test_bad_task_left_by_a_fixture",
        "test_bad_exception_never_retrieved",
        "test_bad_never_awaited",
        "test_bad_warning",
        "test_bad_thread",
    }, result.stdout.str()


def test_child_processes_can_be_interrupted_also_where_the_run_cannot() -> None:
    """A run that a shell without job control started in the background ignores SIGINT."""
    child = "import signal; print(signal.getsignal(signal.SIGINT) is signal.SIG_IGN)"
    run = (
        "import signal, subprocess, sys; signal.signal(signal.SIGINT, signal.SIG_IGN); import tests.conftest; "
        f"subprocess.run([sys.executable, '-c', {child!r}], check=True)"
    )
    public_text = subprocess.run([sys.executable, "-c", run], cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
    assert public_text.stdout == "False\n"
