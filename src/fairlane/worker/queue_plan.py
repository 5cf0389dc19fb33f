"""The plan of a worker: the queue options that its handlers declare but that are not in force."""

from __future__ import annotations

from typing import Any

import msgspec

from fairlane.client.client import Client
from fairlane.errors import NotFound
from fairlane.model.queue import QueueOptions
from fairlane.wire.queues import OPTION_NAMES
from fairlane.worker.app import App


class OptionChange(msgspec.Struct, frozen=True):
    """A queue option whose value differs from the app's declaration."""

    queue: str
    option: str
    before: Any
    after: Any


async def option_changes(app: App, client: Client, queues: list[str] | None = None) -> list[OptionChange]:
    """Return the changes that `apply_option_changes` would make, in all queues or in those named.

    A queue needs at least the largest `max_attempts` of its handlers. A higher limit is left unchanged.
    """
    found = []
    for queue, declared in app.declared().items():
        if queues and queue not in queues:
            continue
        in_force = await _in_force(client, queue)
        attempts = max([one.max_attempts or 0 for one in app.handlers if one.queue == queue])
        if attempts - 1 > in_force["retry_limit"]:
            declared = {"retry_limit": attempts - 1, **declared}
        for name, value in declared.items():
            if in_force[name] != value:
                found.append(OptionChange(queue, name, in_force[name], value))
    return found


async def apply_option_changes(client: Client, some: list[OptionChange]) -> None:
    for queue in dict.fromkeys(one.queue for one in some):
        options = {one.option: one.after for one in some if one.queue == queue}
        try:
            await client.queues.set_options(queue, **options)
        except NotFound:
            await client.queues.configure(queue, **options)


async def _in_force(client: Client, queue: str) -> dict[str, Any]:
    try:
        options = (await client.queues.show(queue, limit=1)).options
    except NotFound:  # the first push creates it with the defaults
        return msgspec.structs.asdict(QueueOptions())
    return {name: options.get(wire) for name, wire in OPTION_NAMES.items()}
