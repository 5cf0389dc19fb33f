"""`fairlane worker ...`"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from fairlane.cli.logs import log_as
from fairlane.cli.output import print_table, shown_time
from fairlane.cli.verb import DEFAULT, Server, Shown, arg, noun, opt, verb

if TYPE_CHECKING:
    from fairlane.blocking import Client

app = noun()


@app.command()
def run(
    target: Annotated[str, arg("MODULE:APP", "Where the app is.")],
    server: Server = DEFAULT,
    queue: Annotated[list[str] | None, opt("Only handlers of this queue.", "--queue", "-q")] = None,
    concurrency: Annotated[
        int | None, opt("Messages at once, for handlers that do not say.", "--concurrency", "-c")
    ] = None,
    grace: Annotated[float, opt("Seconds for what runs when the worker is told to stop.")] = 25.0,
    log_format: Annotated[str, opt("text or json")] = "text",
    watch: Annotated[bool, opt("Show rates, work in hand and lag, live.", "--watch")] = False,
    reload: Annotated[bool, opt("Start again when a source file changes.", "--reload")] = False,
) -> None:
    """Run the handlers of an app until SIGTERM or SIGINT: then finish what runs and give back the rest. A second
    signal ends it at once."""
    log_as(log_format)
    if reload:
        from fairlane.cli.reload import run_again

        again = [argument for argument in sys.argv[1:] if argument != "--reload"]
        sys.exit(run_again([sys.executable, sys.argv[0], *again], Path.cwd()))
    from fairlane.cli.worker_process import Task, work

    task = Task(
        target=target,
        servers=[url.strip() for url in server.split(",")],
        queues=queue,
        concurrency=concurrency,
        grace_seconds=grace,
        watch=watch,
    )
    work(task)


@verb(app, "list")
def list_workers(client: Client) -> Shown:
    """List the workers that are alive, and what they do."""
    workers = client.workers()
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
