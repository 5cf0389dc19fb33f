"""The queues that a spec affects: those that it declares, and those that it pushes to."""

from __future__ import annotations

from collections.abc import Iterator

from fairlane.spec import ir


def declared_queues(spec: ir.Spec) -> set[str]:
    return set(spec.queues)


def target_queues(spec: ir.Spec) -> set[str]:
    """Return the queues that dead letters, commands, webhooks, schedules and pollers of the spec push to."""
    return set(_targets(spec))


def _targets(spec: ir.Spec) -> Iterator[str]:
    for queue in spec.queues.values():
        if isinstance(queue.options.dead_letter_queue, str):
            yield queue.options.dead_letter_queue
    for command in spec.commands.values():
        if isinstance(command.run, ir.QueueRun):
            yield command.run.queue
    for webhook in spec.webhooks.values():
        if webhook.queue is not None:
            yield webhook.queue
    yield from (schedule.queue for schedule in spec.schedules.values())
    yield from (poller.queue for poller in spec.pollers.values())
