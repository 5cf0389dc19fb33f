"""A worker that writes an effect and finishes its message in one transaction, and dies where the message says."""

from __future__ import annotations

import os
import signal
from typing import Any

import asyncpg
import psycopg

from fairlane import App
from fairlane.worker.context import Context

DATABASE = os.environ.get("EFFECTS_DATABASE", "")
EFFECT = "INSERT INTO effects (id) VALUES ({})"
app = App("completing")


def die(point: str, data: dict[str, Any], context: Context) -> None:
    """Die as by kill -9 if the message names this point and is here for the first time."""
    if data["dies"] == point and context.attempt == 1:
        os.kill(os.getpid(), signal.SIGKILL)


@app.handler("jobs", max_attempts=20)
async def handle(data: dict[str, Any], context: Context) -> None:
    connection = await asyncpg.connect(DATABASE)
    async with connection.transaction():
        await connection.execute(EFFECT.format("$1"), data["id"])
        die("before", data, context)
        await context.complete(connection)
        die("completed", data, context)
    die("committed", data, context)
    await connection.close()


@app.handler("blocking jobs", max_attempts=20)
def handle_blocking(data: dict[str, Any], context: Context) -> None:
    with psycopg.connect(DATABASE) as connection:
        connection.execute(EFFECT.format("%s"), [data["id"]])
        die("before", data, context)
        context.complete(connection)
        die("completed", data, context)
    die("committed", data, context)
