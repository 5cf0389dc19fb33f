"""An app whose handler succeeds, fails and gives up, for tests that search a worker's output for secrets."""

from __future__ import annotations

from typing import Any

from fairlane import App, Context, Dead

app = App("canary")


@app.handler("Sealed", lease_seconds=60)
async def work(message: dict[str, Any], ctx: Context) -> Any:
    match message["do"]:
        case "fail" if ctx.attempt == 1:
            raise ValueError("it failed, and says nothing of what it was given")
        case "give up":
            return Dead("given up")
    return {"done": message["card"]}
