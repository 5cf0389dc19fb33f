"""Consumers of the queues that specs map to an app's commands.

The broker's specs say which queues these are, and may change while a worker runs.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from fairlane.client.client import Client
from fairlane.errors import FairlaneError, NotFound
from fairlane.model.names import COMMANDS
from fairlane.runtime.consumer import Consumer
from fairlane.worker.app import Handler, HandlerGroup

if TYPE_CHECKING:
    from fairlane.spec.compiled_queue import CompiledQueue

REFRESH_SECONDS = 2.0

log = logging.getLogger("fairlane.worker")


class InputMapper:
    """Maps a message to the input of its command, with the expressions of the spec in force."""

    def __init__(self, compiled: CompiledQueue) -> None:
        self.compiled = compiled

    def __call__(self, payload: bytes) -> bytes:
        from fairlane.spec.compiled_queue import decoded

        command = self.compiled.command(decoded(payload))
        assert command is not None  # only queues with a mapping get a consumer
        return msgspec.json.encode(command.input)


class MappedConsumers:
    """Starts and stops a consumer for each queue that a spec maps to one of the app's commands."""

    def __init__(
        self, client: Client, handlers: Sequence[Handler], make_consumer: Callable[[HandlerGroup], Consumer]
    ) -> None:
        self._client = client
        self._handlers = {handler.queue: handler for handler in handlers}
        self._make_consumer = make_consumer
        self._running: dict[tuple[str, str], tuple[InputMapper, Consumer, asyncio.Task[int]]] = {}
        """The consumers by queue and command."""
        self._ending: set[asyncio.Task[int]] = set()
        self._documents: list[dict[str, Any]] | None = None

    @property
    def loaded(self) -> bool:
        """True once the mapped queues have been loaded."""
        return self._documents is not None

    async def run(self, stopping: asyncio.Event) -> None:
        """Run until `stopping` is set and the consumers have ended. Raises the permanent error of a consumer."""
        stopped = asyncio.create_task(stopping.wait())
        try:
            while not stopping.is_set():
                await self._refresh()
                tasks = self._tasks()
                await asyncio.wait([stopped, *tasks], timeout=REFRESH_SECONDS, return_when=asyncio.FIRST_COMPLETED)
                if any(task.done() for task in tasks):
                    await self._refresh()  # a consumer ends when its queue is no longer mapped
                    if any(task.done() for task in self._tasks()):
                        break
        finally:
            stopped.cancel()
        for _, consumer, _ in self._running.values():
            consumer.stop()
        tasks = [*self._tasks(), *self._ending]
        try:
            await asyncio.gather(*tasks)
        except asyncio.CancelledError:
            await asyncio.wait(tasks)  # they are cancelled too, and release their leases
            raise

    def _tasks(self) -> list[asyncio.Task[int]]:
        return [task for *_, task in self._running.values()]

    async def _refresh(self) -> None:
        try:
            found = [one.spec for one in await self._client.specs.all()]
        except NotFound:  # the broker does not support specs
            found = []
        except FairlaneError as error:
            log.debug("cannot read the specs: %(error)s", {"error": error})
            return
        if found != self._documents:
            # Parsing takes a while, so keep it off the loop that renews leases.
            self._update(await asyncio.to_thread(_mapped_queues, found, set(self._handlers)))
            self._documents = found

    def _update(self, wanted: dict[tuple[str, str], CompiledQueue]) -> None:
        for key in [key for key in self._running if key not in wanted]:
            _, consumer, task = self._running.pop(key)
            consumer.stop()
            self._ending.add(task)
            task.add_done_callback(self._ending.discard)
        for key, compiled in wanted.items():
            if key in self._running:
                self._running[key][0].compiled = compiled
            else:
                self._running[key] = self._start_consumer(*key, compiled)

    def _start_consumer(
        self, queue: str, command: str, compiled: CompiledQueue
    ) -> tuple[InputMapper, Consumer, asyncio.Task[int]]:
        log.info(
            "handling queue %(queue)r, whose messages become the command %(command)r",
            {"queue": queue, "command": command},
        )
        mapped = InputMapper(compiled)
        handler = msgspec.structs.replace(self._handlers[command], queue=queue, group=COMMANDS)
        group = HandlerGroup(queue=queue, group=COMMANDS, handlers={None: handler}, mapping=mapped)
        consumer = self._make_consumer(group)
        return mapped, consumer, asyncio.create_task(consumer.run())


def _mapped_queues(documents: list[dict[str, Any]], commands: set[str]) -> dict[tuple[str, str], CompiledQueue]:
    """Return the compiled queues that specs map to one of these commands, by queue and command.

    Commands that a spec declares with `run` are left out, because the broker runs them.
    """
    from fairlane.spec import ir
    from fairlane.spec.compiled_queue import CompiledQueue

    found: dict[tuple[str, str], CompiledQueue] = {}
    for document in documents:
        try:
            spec = msgspec.convert(document, ir.Spec)
        except msgspec.ValidationError as error:
            log.error("cannot read a spec of the broker, which has another version: %(error)s", {"error": error})
            continue
        for name, queue in spec.queues.items():
            command = queue.map_to.command if queue.map_to else None
            declared = spec.commands.get(command or "")
            if command in commands and (declared is None or declared.run is None):
                found[name, command] = CompiledQueue(spec, name)
    return found
