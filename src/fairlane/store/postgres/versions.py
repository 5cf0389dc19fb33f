"""The versions of the brokers that use a database. Each names its own on the connection that listens for hints."""

from __future__ import annotations

import logging
import re
from functools import cache
from importlib.metadata import version
from typing import Any, NamedTuple

import asyncpg

from fairlane.store import schema

PACKAGE = "fairlane.store.postgres"
OWN = version("fairlane")
_NAMED = re.compile(r"fairlane (\S+) schema (\d+)")
_RUNNING = """
SELECT DISTINCT application_name FROM pg_stat_activity
WHERE datname = current_database() AND application_name LIKE 'fairlane % schema %'
"""

log = logging.getLogger(__name__)


class BrokerVersion(NamedTuple):
    fairlane: str
    schema: int


@cache
def application_name() -> str:
    return f"fairlane {OWN} schema {schema.load(PACKAGE).version}"


async def running(connection: asyncpg.Connection[Any]) -> list[BrokerVersion]:
    """Return the different versions of brokers that are connected to the database."""
    names = [_NAMED.fullmatch(name) for (name,) in await connection.fetch(_RUNNING)]
    return sorted(BrokerVersion(found[1], int(found[2])) for found in names if found)


def is_newer(fairlane: str, than: str) -> bool:
    """Return True if the first version is a later release. Pre-releases count as their release."""
    return _release(fairlane) > _release(than)


def _release(fairlane: str) -> list[int]:
    return [int(part) for part in fairlane.partition("+")[0].split(".") if part.isdecimal()]


async def log_others(connection: asyncpg.Connection[Any], installed: str) -> None:
    """Log the versions of other brokers, and of the last upgrade, if they differ from this one."""
    others = {installed, *(one.fairlane for one in await running(connection))} - {OWN}
    if others:
        log.warning(
            "this broker is Fairlane %(version)s, and Fairlane %(versions)s uses the store, too: both work, but finish"
            " the upgrade before the next one",
            {"version": OWN, "versions": ", ".join(sorted(others))},
        )
