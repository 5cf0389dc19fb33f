"""The connection of a command to its broker, and the words when it fails."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from fairlane.config import Settings
from fairlane.errors import Unavailable

if TYPE_CHECKING:
    from fairlane.blocking import Client

Server = Annotated[
    str,
    typer.Option(
        "--server",
        "-s",
        envvar="FAIRLANE_SERVER",
        metavar="URL",
        help="The broker; several, separated by commas, if they share a store.",
    ),
]
DEFAULT = f"http://{Settings().host}:{Settings().port}"


@contextmanager
def connected(server: str, *, attempts: int = 3) -> Iterator[Client]:
    """A client for the length of a command. It gives up sooner than a program would: somebody is watching."""
    # The client is imported by the commands that need one: a broker must not pay for it, nor `--help` wait for it.
    from fairlane.blocking import Client

    with Client([url.strip() for url in server.split(",")], attempts=attempts, retry_delay=0.3) as client:
        try:
            yield client
        except Unavailable as error:
            if "cannot reach" not in str(error):
                raise
            raise Unavailable(
                f"{error}\nIs a broker running there? `fairlane serve` starts one; --server names another."
            ) from None
