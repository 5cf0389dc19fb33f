"""`fairlane worker ...`: a process that loads an app, handles signals, and ends when the worker has."""

from __future__ import annotations

import asyncio
import importlib
import logging
import os
import signal
import sys
import traceback
from pathlib import Path
from typing import Annotated, Any

from fairlane.cli import TRY_AGAIN
from fairlane.cli.logs import log_as, log_stopped
from fairlane.cli.output import print_table, shown_time
from fairlane.cli.verb import Client, Noun, Server, Shown, arg, opt, verb
from fairlane.errors import FairlaneError, InvalidRequest
from fairlane.model.names import DEFAULT_SERVER
from fairlane.worker import Worker
from fairlane.worker.app import App

log = logging.getLogger("fairlane.worker")
app = Noun("worker", otherwise="run")


@app.command()
def run(
    target: Annotated[str, arg("MODULE:APP", "Where the app is.")],
    server: Server = DEFAULT_SERVER,
    queue: Annotated[list[str] | None, opt("Only handlers of this queue.", "--queue", "-q")] = None,
    concurrency: Annotated[
        int | None, opt("Messages at once, for handlers that do not say.", "--concurrency", "-c")
    ] = None,
    grace: Annotated[float, opt("Seconds for what runs when the worker is told to stop.")] = 25.0,
    log_format: Annotated[str, opt("text or json")] = "text",
    otel: Annotated[
        str, opt("Spans by OpenTelemetry: on, off, or auto if OTEL_* ask for them.", envvar="FAIRLANE_OTEL")
    ] = "auto",
    watch: Annotated[bool, opt("Show rates, work in hand and lag, live.", "--watch")] = False,
    reload: Annotated[bool, opt("Start again when a source file changes.", "--reload")] = False,
    processes: Annotated[int, opt("Worker processes; those that die are replaced.", "--processes", "-p")] = 1,
    plan: Annotated[bool, opt("Show handlers, and which options that they declare are not set.", "--plan")] = False,
    apply: Annotated[bool, opt("Set the options that handlers declare, then run.", "--apply")] = False,
    supervised: Annotated[bool, opt("", "--supervised", hidden=True)] = False,
) -> None:
    """Run the handlers of an app until SIGTERM or SIGINT: then finish what runs and give back the rest. A second
    signal ends it at once."""
    log_as(log_format)
    if reload:
        from fairlane.cli.reload import run_again

        again = [argument for argument in sys.argv[1:] if argument != "--reload"]
        sys.exit(run_again([sys.executable, sys.argv[0], *again], Path.cwd()))
    loaded = load(target)
    servers = [url.strip() for url in server.split(",")]
    if plan or apply:
        from fairlane.cli import worker_plan

        asyncio.run(worker_plan.show(loaded, servers, queue) if plan else worker_plan.apply(loaded, servers, queue))
        if plan:
            return
    if processes > 1:
        if watch:
            raise InvalidRequest("--watch shows one process: leave --processes away, or use `fairlane worker list`")
        from fairlane.cli.supervisor import Workers

        command = [sys.executable, sys.argv[0], *_child_arguments(sys.argv[1:])]
        sys.exit(asyncio.run(Workers(processes, command, grace).run(lambda: None)))
    if watch and not sys.stdout.isatty():
        raise InvalidRequest("--watch draws on a terminal, and the standard output is none")
    from fairlane.cli.spans import start_spans

    start_spans(otel, f"{target.partition(':')[0]} worker")
    worker = Worker(loaded, servers, queues=queue, concurrency=concurrency, grace_seconds=grace)
    asyncio.run(_work(worker, target, servers, watch=watch, supervised=supervised))
    log_stopped(log)
    if worker.stuck or worker.spent:  # threads that nobody can end must not keep the process
        logging.shutdown()
        os._exit(TRY_AGAIN if worker.spent else 0)


@verb(app, "list")
async def list_workers(client: Client) -> Shown:
    """List the workers that are alive, and what they do."""
    workers = await client.workers.list()
    columns = ("app", "host", "process", "queue", "group", "in hand", "handled", "failed", "ms", "seen")
    rows = [
        (
            *(one.app, one.hostname, one.pid, part.queue, part.group, part.in_hand, part.handled, part.failed),
            round(part.mean_ms, 1),
            shown_time(one.seen_at),
        )
        for one in workers
        for part in one.queues
    ]
    return Shown(workers, lambda: print_table(columns, rows, empty="No worker is alive."))


def _child_arguments(arguments: list[str]) -> list[str]:
    """The arguments of a worker process under a supervisor: without those that are for the supervisor alone."""
    found: list[str] = []
    given = iter(arguments)
    for argument in given:
        if argument in ("--processes", "-p"):
            next(given, None)
        elif argument != "--apply" and not argument.startswith("--processes="):
            found.append(argument)
    return [*found, "--supervised"]


async def _work(worker: Worker, target: str, servers: list[str], *, watch: bool, supervised: bool) -> None:
    """Run the worker until a signal, or if it is `supervised` the end of stdin."""
    _on_signals(worker)
    if supervised:
        _on_end_of_input(worker)
    watching = asyncio.create_task(_watch(worker, servers)) if watch else None
    log.info(
        "worker of %(target)s at %(servers)s, process %(pid)d",
        {"target": target, "servers": ", ".join(servers), "pid": os.getpid()},
    )
    try:
        await worker.run()
    finally:
        if watching is not None:
            watching.cancel()


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


def _on_end_of_input(worker: Worker) -> None:
    loop = asyncio.get_running_loop()

    def on_input() -> None:
        if not os.read(0, 1024):
            loop.remove_reader(0)
            log.error("stopping: the supervisor is gone")
            worker.stop()

    loop.add_reader(0, on_input)


async def _watch(worker: Worker, servers: list[str]) -> None:
    from fairlane.cli.watch import watch

    try:
        await watch(worker, servers)
    except FairlaneError as error:
        log.warning("cannot show the watch screen any more: %(error)s", {"error": error})
