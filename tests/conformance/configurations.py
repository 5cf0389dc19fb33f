"""The store configurations that every statement of the suite must hold on."""

from __future__ import annotations

import os
from dataclasses import dataclass


@dataclass(frozen=True)
class Configuration:
    """`name` is one word of a test's id, so it has no dash."""

    name: str
    postgres: int | None = None
    """Major version of the server, or None for a SQLite file."""
    statement_cache: bool = True
    schema: str = "fairlane"
    cell: int = 0
    """Cell that the ids of the store belong to."""
    second: int | None = None
    """Major version of the server with a second cell."""
    citus: str = ""
    """URL of a Citus coordinator."""


CITUS = os.environ.get("FAIRLANE_TEST_CITUS", "")
"""URL of the coordinator of a Citus cluster. Without it, the tests on Citus are skipped."""
CONFIGURATIONS = (
    Configuration("sqlite"),
    Configuration("postgres18", postgres=18),
    # The older server, as behind a pooler that keeps no prepared statements: each statement runs on both servers, with
    # the driver's cache and without. Its store is another cell in a schema of another name.
    Configuration("postgres16_uncached", postgres=16, statement_cache=False, schema="fairlane_3", cell=3),
    # Queues are created in the second cell and in the home in turn.
    Configuration("postgres18_cells", postgres=18, second=16),
    # The home is on the coordinator, and queues are created in a cell on a worker.
    *((Configuration("citus", citus=CITUS),) if CITUS else ()),
)
