"""The check of the flow: where messages go from each queue, and that none goes in a circle."""

from __future__ import annotations

from collections.abc import Callable

from fairlane.spec import ir
from fairlane.spec.check_webhook import unknown_queue
from fairlane.spec.finding import Finding
from fairlane.spec.fits import INT, STRING, misfit
from fairlane.spec.spec_file import Path

DEAD_LETTER = ir.RecordType(
    fields={
        "original_message": ir.Scalar(of="json"),
        "failed_at": ir.Scalar(of="time"),
        "error": STRING,
        "attempts": INT,
    }
)
"""What a queue gets of another whose `dead_letter_queue` it is."""


def check_flow(spec: ir.Spec) -> list[Finding]:
    findings: list[Finding] = []
    for name, queue in spec.queues.items():
        target = queue.options.dead_letter_queue
        if isinstance(target, str):
            path = ("queues", name, "options", "dead_letter_queue")
            findings += unknown_queue(spec, path, target) or _check_dead_letter(spec, path, target)
    findings += _circles(spec, _dead_letter_queue, "options", "dead_letter_queue", what="dead letters")
    return findings + _circles(spec, _next_queue, "map_to", what="messages")


def _check_dead_letter(spec: ir.Spec, path: Path, target: str) -> list[Finding]:
    wanted = spec.queues[target].message_type
    if wanted is None or not (why := misfit(DEAD_LETTER, wanted)):
        return []
    hint = "a dead letter has `original_message`, `failed_at`, `error` and `attempts`"
    return [Finding(path, f"dead letters never fit `{target}`: {why}", hint)]


def _dead_letter_queue(spec: ir.Spec, name: str) -> str | None:
    target = spec.queues[name].options.dead_letter_queue
    return target if isinstance(target, str) else None


def _next_queue(spec: ir.Spec, name: str) -> str | None:
    """The queue that the command of a queue's messages pushes to."""
    mapping = spec.queues[name].map_to
    command = spec.commands.get(mapping.command) if mapping else None
    return command.run.queue if command and isinstance(command.run, ir.QueueRun) else None


def _circles(spec: ir.Spec, following: Callable[[ir.Spec, str], str | None], *part: str, what: str) -> list[Finding]:
    """Each circle once, told at the first of its queues. Every queue leads to one other at most."""
    findings: list[Finding] = []
    seen: set[str] = set()
    for start in spec.queues:
        way: list[str] = []
        name: str | None = start
        while name is not None and name in spec.queues and name not in seen:
            seen.add(name)
            way.append(name)
            name = following(spec, name)
        if name in way:
            circle = way[way.index(name) :]
            shown = " -> ".join([*circle, circle[0]])
            findings.append(Finding(("queues", circle[0], *part), f"{what} would go in a circle: {shown}"))
    return findings
