"""`fairlane worker ...`"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from fairlane.cli.connection import DEFAULT, Server, connected
from fairlane.cli.output import AsJson, print_json, print_table, shown_time


class _Group(TyperGroup):
    """`fairlane worker module:app` is short for `fairlane worker run module:app`."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args and (":" in args[0] or not self.get_command(ctx, args[0])):
            args = ["run", *args]  # which says what is wrong with it
        return super().resolve_command(ctx, args)


app = typer.Typer(
    cls=_Group,
    help="Run the handlers of an app: `fairlane worker module:app`. List the workers that are alive.",
    no_args_is_help=True,
)


@app.command()
def run(
    target: Annotated[str, typer.Argument(metavar="MODULE:APP", help="Where the app is.", show_default=False)],
    server: Server = DEFAULT,
    queue: Annotated[
        list[str] | None, typer.Option("--queue", "-q", help="Only handlers of this queue.", show_default=False)
    ] = None,
    concurrency: Annotated[
        int | None,
        typer.Option("--concurrency", "-c", help="Messages at once, for handlers that do not say.", show_default=False),
    ] = None,
    grace: Annotated[float, typer.Option(help="Seconds for what runs when the worker is told to stop.")] = 25.0,
    log_format: Annotated[str, typer.Option(help="text or json")] = "text",
    watch: Annotated[bool, typer.Option("--watch", help="Show rates, work in hand and lag, live.")] = False,
    reload: Annotated[bool, typer.Option("--reload", help="Start again when a source file changes.")] = False,
) -> None:
    """Run the handlers of an app until SIGTERM or SIGINT: then finish what runs and give back the rest. A second
    signal ends it at once."""
    from fairlane.cli.logs import log_as

    log_as(log_format)
    if reload:
        from fairlane.cli.reload import run_again

        sys.exit(run_again([sys.executable, sys.argv[0], *_without_reload(sys.argv[1:])], Path.cwd()))
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


@app.command("list")
def list_workers(server: Server = DEFAULT, json: AsJson = False) -> None:
    """List the workers that are alive, and what they do."""
    with connected(server) as client:
        workers = client.workers()
    if json:
        print_json(workers)
        return
    rows = [
        (
            one.app,
            one.hostname,
            one.pid,
            part.queue,
            part.group,
            part.in_hand,
            part.handled,
            part.failed,
            round(part.mean_ms, 1),
            shown_time(one.seen_at),
        )
        for one in workers
        for part in one.queues
    ]
    columns = ("app", "host", "process", "queue", "group", "in hand", "handled", "failed", "ms", "seen")
    print_table(columns, rows, empty="No worker is alive.")


def _without_reload(arguments: list[str]) -> list[str]:
    return [argument for argument in arguments if argument != "--reload"]
