"""`fairlane ...`: the command line and its entry point."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import NoReturn

import click
from click.exceptions import Exit, NoArgsIsHelpError, NoSuchCommand

from fairlane.cli import INTERRUPTED, REFUSED, TRY_AGAIN
from fairlane.cli.toolkit.command import CommandGroup
from fairlane.cli.toolkit.output import printable
from fairlane.errors import FairlaneError

COMMANDS = {
    "serve": "serve",
    "push": "push",
    "pop": "pop",
    "ack": "pop",
    "tail": "tail",
    "poll": "poll",
    "status": "status",
    "top": "status",
    "grant-enqueue": "grant_enqueue",
    "doctor": "doctor",
    "backup": "backup",
    "restore": "backup",
    "export": "exchange",
    "import": "exchange",
    "migrate": "migrate",
    "mirror": "mirror",
    "verify": "verify",
    "completion": "completion",
}
"""Modules of the commands that belong to no group."""

GROUPS = {
    "queue": "List, show, create, set, pause, explain, clear and delete queues.",
    "message": "List, show, retry, dead-letter and delete stored messages, and read their results.",
    "group": "List, seek and delete consumer groups.",
    "dlq": "List, show, replay and purge dead letters.",
    "retention": "Apply retention rules now, and list what they deleted.",
    "spec": "Check, plan and apply specs, the files that declare queues.",
    "hook": "List, sign and test the webhooks that specs declare.",
    "fan-in": "Show and delete fan-ins: messages with a callback after the ends of all of them.",
    "schedule": "Define, list, pause and run schedules, which push messages at set times.",
    "worker": "Run the handlers of an app (`fairlane worker module:app`), and list live workers.",
    "source": "List and delete the sources that `fairlane poll` reads.",
    "trace": "Show the messages of a trace, and the notes that consumers added.",
    "pause": "Pause and resume all pops or all pushes.",
    "key": "Create, list, rotate and revoke API keys.",
    "finding": "List problems that need attention, and snooze them.",
    "audit": "List audit log entries, and verify that the log was not changed.",
    "tenant": "Create, limit and delete the tenants of a broker.",
    "cluster": "Add, list, close and remove the cells of a store: PostgreSQL servers that share its queues.",
    "operation": "List pending and failed pushes and acks; retry or discard failed ones.",
}
"""Help texts of the groups. The module of a group has its name."""


class _Root(click.Group):
    """The `fairlane` command. Imports the module of a command when that command runs."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*COMMANDS, *GROUPS]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name in COMMANDS:
            return _app(COMMANDS[cmd_name]).commands[cmd_name]
        if cmd_name not in GROUPS:
            return None
        group = _app(cmd_name)
        group.help = GROUPS[cmd_name]
        return group

    def invoke(self, ctx: click.Context) -> None:
        try:
            super().invoke(ctx)
        except KeyboardInterrupt:
            raise Exit(INTERRUPTED) from None

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args[0] not in (*COMMANDS, *GROUPS) and not ctx.resilient_parsing:
            raise NoSuchCommand(args[0], possibilities=self.list_commands(ctx), ctx=ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        commands = [(name, _app(module).commands[name].get_short_help_str()) for name, module in COMMANDS.items()]
        for title, rows in (("Commands", commands), ("Command groups", list(GROUPS.items()))):
            with formatter.section(title):
                formatter.write_dl(rows)


def _app(module: str) -> CommandGroup:
    app: CommandGroup = import_module(f"fairlane.cli.commands.{module.replace('-', '_')}").app
    return app


@click.command(
    cls=_Root,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100, "show_default": True},
    epilog="Exit codes: 0 success, 1 nothing found, 2 invalid or refused, 75 try again later.",
)
@click.option("-s", "--server", metavar="URL", help="Broker URL. May also follow the command.")
@click.option("--insecure", is_flag=True, help="Send API keys to other machines without TLS.")
@click.version_option(package_name="fairlane", message="%(prog)s %(version)s", help="Print the version and exit.")
@click.pass_context
def cli(ctx: click.Context, server: str | None, insecure: bool) -> None:
    """Fairlane: a durable, ordered message queue on the SQL database you already run."""
    if insecure:
        os.environ["FAIRLANE_INSECURE"] = "1"  # also for the processes that this command starts
    ctx.call_on_close(sys.stdout.flush)  # where click handles a closed pipe


def main() -> NoReturn:
    # A payload may have characters that the terminal cannot show.
    sys.stdout.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    sys.exit(run(sys.argv[1:]))


def run(words: Sequence[str]) -> int:
    """Run the command that the words after `fairlane` name. Returns its exit code."""
    try:
        code: int | None = cli.main(words, prog_name="fairlane", standalone_mode=False)
        return code or 0
    except NoArgsIsHelpError as error:
        error.show()
    except click.UsageError as error:
        message = " ".join(error.format_message().split())
        end = "" if message.endswith((".", "?", ")")) else "."
        hint = f" Try '{error.ctx.command_path} --help'." if error.ctx else ""
        sys.stderr.write(printable(f"fairlane: {message}{end}{hint}") + "\n")
    except FairlaneError as error:
        sys.stderr.write(f"fairlane: {error}\n")
        return TRY_AGAIN if error.retryable else REFUSED
    return REFUSED
