"""Runs in a client's own environment: reads what to play, a JSON line each, and answers how it went.

The scenarios of a module are its public coroutines. They play at the same time, each with a client and a queue of
its own, since most of their time is waiting.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import inspect
import io
import json
import os
import sys
import traceback
from typing import Any

import queen

SECONDS_MAX = 60


def main() -> None:
    # The clients print to stdout, which must not mix with the answers.
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    for line in sys.stdin:
        said = io.StringIO()
        with contextlib.redirect_stdout(said):
            outcomes = asyncio.run(play(**json.loads(line)))
        failures = [outcome for outcome in outcomes if outcome is not None]
        answers.write(json.dumps({"played": len(outcomes), "failures": failures, "said": said.getvalue()}) + "\n")
        answers.flush()


async def play(module: str, url: str, queue: str) -> list[str | None]:
    """Run the scenarios and return the error of each, or None."""
    members = inspect.getmembers(importlib.import_module(module), inspect.iscoroutinefunction)
    scenarios = [member for name, member in members if not name.startswith("_")]
    return await asyncio.gather(*(outcome(scenario, url, f"{queue}-{n}") for n, scenario in enumerate(scenarios)))


async def outcome(scenario: Any, url: str, name: str) -> str | None:
    client = queen.Queen(url)
    given = {"client": client, "queue": name, "url": url}
    try:
        async with asyncio.timeout(SECONDS_MAX):
            await scenario(**{key: given[key] for key in inspect.signature(scenario).parameters})
    except Exception:
        return f"{scenario.__name__}: {traceback.format_exc()}"
    finally:
        await client.close()
    return None


if __name__ == "__main__":
    main()
