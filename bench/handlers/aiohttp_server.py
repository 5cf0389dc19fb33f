"""`python -m bench.handlers.aiohttp_server PORT plain|routed`: aiohttp's server alone, or with its application."""

from __future__ import annotations

import asyncio
import sys

import uvloop
from aiohttp import web

from bench.handlers.push import answer


async def handle(request: web.BaseRequest) -> web.Response:
    return web.Response(status=201, body=answer(await request.read()), content_type="application/json")


async def main(port: int, kind: str) -> None:
    runner: web.BaseRunner
    if kind == "plain":
        runner = web.ServerRunner(web.Server(handle, access_log=None))
    else:
        app = web.Application()
        app.router.add_post("/api/v1/push", handle)
        runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    await asyncio.Event().wait()


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main(int(sys.argv[1]), sys.argv[2]))
