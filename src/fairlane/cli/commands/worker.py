"""`fairlane worker ...`: run the handlers of an app, and list live workers."""

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
from fairlane.cli.processes.logs import configure_logging, log_stopped
from fairlane.cli.toolkit.command import Client, CommandGroup, Output, Server, arg, client_command, command, opt
from fairlane.cli.toolkit.output import format_time, print_table
from fairlane.errors import FairlaneError, InvalidRequest
from fairlane.model.names import DEFAULT_SERVER
from fairlane.worker import Worker
from fairlane.worker.app import App

log = logging.getLogger("fairlane.worker")
app = CommandGroup("worker", default="run")


@command(app)
def run(
    target: Annotated[str, arg("MODULE:APP", "Module and name of the app.")],
    server: Server = DEFAULT_SERVER,
    queue: Annotated[tuple[str, ...], opt("Run only handlers of this queue. Can be repeated.", "--queue", "-q")] = (),
    concurrency: Annotated[
        int | None, opt("Concurrent messages of handlers that do not set it.", "--concurrency", "-c")
    ] = None,
    grace: Annotated[float, opt("Seconds that running handlers have to finish after a stop signal.")] = 25.0,
    log_format: Annotated[str, opt("Log format: text or json.")] = "text",
    otel: Annotated[
        str, opt("OpenTelemetry spans: on, off, or auto to follow OTEL_*.", envvar="FAIRLANE_OTEL")
    ] = "auto",
    watch: Annotated[bool, opt("Show live rates, messages in progress and lag.", "--watch")] = False,
    reload: Annotated[bool, opt("Restart when a source file changes.", "--reload")] = False,
    processes: Annotated[
        int, opt("Number of worker processes. Processes that die are restarted.", "--processes", "-p")
    ] = 1,
    plan: Annotated[bool, opt("Show the handlers and the queue options that --apply would set.", "--plan")] = False,
    apply: Annotated[bool, opt("Set the queue options that handlers declare, then run.", "--apply")] = False,
    supervised: Annotated[bool, opt("", "--supervised", hidden=True)] = False,
) -> None:
    """Run the handlers of an app until SIGTERM or SIGINT.

    On a signal, running handlers finish and other messages are released. A second signal exits at once.
    """
    configure_logging(log_format)
    if reload:
        from fairlane.cli.processes.reload import run_with_reload

        again = [argument for argument in sys.argv[1:] if argument != "--reload"]
        sys.exit(run_with_reload([sys.executable, sys.argv[0], *again], Path.cwd()))
    loaded = load(target)
    servers = [url.strip() for url in server.split(",")]
    queues = list(queue) or None
    if plan or apply:
        from fairlane.cli.processes import worker_plan

        asyncio.run(worker_plan.show(loaded, servers, queues) if plan else worker_plan.apply(loaded, servers, queues))
        if plan:
            return
    if processes > 1:
        if watch:
            raise InvalidRequest("--watch shows a single process; leave out --processes, or use `fairlane worker list`")
        from fairlane.cli.processes.supervisor import WorkerSupervisor

        command = [sys.executable, sys.argv[0], *_child_arguments(sys.argv[1:])]
        sys.exit(asyncio.run(WorkerSupervisor(processes, command, grace).run(lambda: None)))
    if watch and not sys.stdout.isatty():
        raise InvalidRequest("--watch needs a terminal as standard output")
    from fairlane.cli.processes.otel import start_otel

    start_otel(otel, f"{target.partition(':')[0]} worker")
    worker = Worker(loaded, servers, queues=queues, concurrency=concurrency, grace_seconds=grace)
    asyncio.run(_work(worker, target, servers, watch=watch, supervised=supervised))
    log_stopped(log)
    if worker.stuck or worker.threads_exhausted:  # threads cannot be cancelled and must not keep the process alive
        logging.shutdown()
        os._exit(TRY_AGAIN if worker.threads_exhausted else 0)


@client_command(app, "list")
async def list_workers(client: Client) -> Output:
    """List live and lost workers and their queues.

    A lost worker stopped reporting without leaving, for example because it was killed.
    """
    workers = [*await client.workers.all(), *await client.workers.lost()]
    columns = ("app", "host", "process", "state", "queue", "group", "in hand", "handled", "failed", "ms", "seen")
    rows = [
        (
            *(
                one.app,
                one.hostname,
                one.pid,
                "LOST" if one.lost else "live",
                part.queue,
                part.group,
                part.in_hand,
                part.handled,
                part.failed,
            ),
            round(part.mean_ms, 1),
            format_time(one.seen_at),
        )
        for one in workers
        for part in one.queues
    ]
    return Output(workers, lambda: print_table(columns, rows, empty="There are no workers."))


def _child_arguments(arguments: list[str]) -> list[str]:
    """Return the arguments of a worker process, without those for the supervisor."""
    found: list[str] = []
    given = iter(arguments)
    for argument in given:
        if argument in ("--processes", "-p"):
            next(given, None)
        elif argument != "--apply" and not argument.startswith("--processes="):
            found.append(argument)
    return [*found, "--supervised"]


async def _work(worker: Worker, target: str, servers: list[str], *, watch: bool, supervised: bool) -> None:
    """Run the worker until a signal or, if `supervised`, until the end of stdin."""
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
    """Import and return the app `module:name`. Raises InvalidRequest if it cannot be imported."""
    module, _, name = target.partition(":")
    if not module or not name:
        raise InvalidRequest(f"{target!r:.80} is not the name of an app; use module:app")
    sys.path.insert(0, str(Path.cwd()))
    try:
        found: Any = importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module}.".startswith(f"{error.name}."):
            raise InvalidRequest(_import_error(module, error)) from None
        raise InvalidRequest(f"module {module!r} was not found in {Path.cwd()} or on the path") from None
    except Exception as error:  # user code can raise anything
        raise InvalidRequest(_import_error(module, error)) from None
    for part in name.split("."):
        found = getattr(found, part, None)
    if not isinstance(found, App):
        raise InvalidRequest(f"{target!r:.80} is not a fairlane.App")
    return found


def _import_error(module: str, error: Exception) -> str:
    """Return the traceback of a failed import, without the frames of Fairlane and importlib."""
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
            log.error("stopping: the supervisor has exited")
            worker.stop()

    loop.add_reader(0, on_input)


async def _watch(worker: Worker, servers: list[str]) -> None:
    from fairlane.cli.processes.worker_watch import watch

    try:
        await watch(worker, servers)
    except FairlaneError as error:
        log.warning("stopped the watch screen: %(error)s", {"error": error})
