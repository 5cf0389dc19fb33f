"""The process of `fairlane worker`: loads the app, handles signals, and ends when the worker has."""

from __future__ import annotations

import asyncio
import importlib
import logging
import os
import signal
import sys
import traceback
from pathlib import Path
from typing import Any

import msgspec

from fairlane.app import App
from fairlane.errors import FairlaneError, InvalidRequest
from fairlane.worker import Worker

log = logging.getLogger("fairlane.worker")


class Task(msgspec.Struct, frozen=True, kw_only=True):
    """The task of a worker process: what the command line asked for."""

    target: str
    servers: list[str]
    queues: list[str] | None
    concurrency: int | None
    grace_seconds: float
    watch: bool


def work(task: Task) -> None:
    """Run the app until a signal."""
    stuck = asyncio.run(_work(load(task.target), task))
    log.info("stopped")
    if stuck:  # threads that nobody can end must not keep the process
        logging.shutdown()
        os._exit(0)


async def _work(app: App, task: Task) -> bool:
    worker = Worker(
        app,
        task.servers,
        queues=task.queues,
        concurrency=task.concurrency,
        grace_seconds=task.grace_seconds,
    )
    _on_signals(worker)
    watching = asyncio.create_task(_watched(worker, task.servers)) if task.watch else None
    log.info("worker of %s at %s, process %d", task.target, ", ".join(task.servers), os.getpid())
    try:
        await worker.run()
    finally:
        if watching is not None:
            watching.cancel()
    return worker.stuck


def load(target: str) -> App:
    """The app that `module:name` names. InvalidRequest says what is missing."""
    module, _, name = target.partition(":")
    if not module or not name:
        raise InvalidRequest(f"{target!r:.80} names no app; use module:app")
    sys.path.insert(0, str(Path.cwd()))
    try:
        found: Any = importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module}.".startswith(f"{error.name}."):
            raise InvalidRequest(_mistake(module, error)) from None
        raise InvalidRequest(f"there is no module {module!r} in {Path.cwd()} or on the path") from None
    except Exception as error:  # whatever the module of somebody else raises
        raise InvalidRequest(_mistake(module, error)) from None
    for part in name.split("."):
        found = getattr(found, part, None)
    if not isinstance(found, App):
        raise InvalidRequest(f"{target!r:.80} is not a fairlane.App")
    return found


def _mistake(module: str, error: Exception) -> str:
    """What went wrong while a module was imported, as Python tells it, from where the module begins."""
    frames = error.__traceback__
    while frames is not None and "importlib" in frames.tb_frame.f_code.co_filename:
        frames = frames.tb_next
    ours = traceback.TracebackException(type(error), error, frames)
    ours.stack = traceback.StackSummary.from_list(
        [frame for frame in ours.stack if "importlib" not in frame.filename and frame.filename != __file__]
    )
    return f"the module {module!r} cannot be imported:\n{''.join(ours.format()).rstrip()}"


def _on_signals(worker: Worker) -> None:
    stopping = False

    def on_signal(number: int) -> None:
        nonlocal stopping
        if stopping:
            log.warning("second signal: exiting at once")
            logging.shutdown()
            os._exit(128 + number)
        stopping = True
        log.info("stopping: waiting for running handlers")
        worker.stop()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, on_signal, number)


async def _watched(worker: Worker, servers: list[str]) -> None:
    from fairlane.cli.watch import watch

    try:
        await watch(worker, servers)
    except FairlaneError as error:
        log.warning("cannot show the watch screen any more: %s", error)
