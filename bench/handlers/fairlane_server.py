"""`python -m bench.handlers.fairlane_server PORT`: ours, on the loop of the broker."""

from __future__ import annotations

import asyncio
import sys

from bench.handlers.push import answer
from fairlane.http.server import Request, Response, Server
from fairlane.runtime.memory import ease_collector
from fairlane.runtime.process import new_event_loop


async def handle(request: Request) -> Response:
    return Response(201, answer(request.body))


async def main(port: int) -> None:
    server = Server(handle)
    ease_collector()
    await server.start("127.0.0.1", port)
    await asyncio.Event().wait()


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        runner.run(main(int(sys.argv[1])))
