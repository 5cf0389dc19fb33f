"""A compiled queue of a spec: validates messages, chooses their partition, and maps them to commands."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from fairlane.errors import ExpressionFailed
from fairlane.model.names import DEFAULT_PARTITION, check_name, is_plain
from fairlane.spec import ir
from fairlane.spec.expression.evaluate import compile_expression, compile_mapping
from fairlane.spec.types import compile_input_validator, compile_validator

_decode = msgspec.json.Decoder(dict[str, Any]).decode


class MappedCommand(msgspec.Struct, frozen=True):
    name: str
    input: dict[str, Any]


def compile_command(spec: ir.Spec, mapping: ir.Mapping) -> Callable[[dict[str, Any]], MappedCommand]:
    """Return a function that maps a message to its command. It raises ExpressionFailed or PayloadInvalid."""
    mapped, declared = compile_mapping(mapping), spec.commands.get(mapping.command)
    validate = compile_input_validator(declared.input) if declared and declared.input else None

    def command(message: dict[str, Any]) -> MappedCommand:
        built = mapped(message)
        if validate is not None:
            validate(built)
        return MappedCommand(mapping.command, built)

    return command


class CompiledQueue:
    """A compiled queue of a spec. The spec must have passed `check`."""

    def __init__(self, spec: ir.Spec, name: str) -> None:
        queue = spec.queues[name]
        self.options = queue.options
        self.mapping = queue.map_to
        self._validate = compile_validator(queue.message_type) if queue.message_type else None
        self._key = compile_expression(queue.key) if queue.key is not None else None
        self._key_text = queue.key
        self._command = compile_command(spec, queue.map_to) if queue.map_to else None
        self.keyed = self._key is not None
        self.inspects = self.keyed or self._validate is not None
        """True if a message is decoded when it is pushed."""

    def check(self, payload: bytes) -> None:
        """Raise PayloadInvalid if a message does not fit the type of the queue."""
        if self._validate is not None:
            self._validate(payload)

    def partition(self, message: dict[str, Any]) -> str | None:
        """Return the partition that the key of the message names, or None if the queue has no key."""
        if self._key is None:
            return None
        key = self._key(message)
        if type(key) is int:
            return str(key)
        if type(key) is not str or not key:
            raise ExpressionFailed(f"the key `{self._key_text}` must be a non-empty string or a whole number")
        return key if is_plain(key) else check_name(f"the key `{self._key_text}`", key)

    def command(self, message: dict[str, Any]) -> MappedCommand | None:
        """Return the command that a message is mapped to, or None if the queue has no mapping."""
        return None if self._command is None else self._command(message)


def decoded(payload: bytes) -> dict[str, Any]:
    """Decode a message for expressions. Raises ExpressionFailed if it is not an object."""
    try:
        return _decode(payload)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ExpressionFailed(f"expressions need a JSON object: {error}") from None


class Preview(msgspec.Struct, frozen=True):
    """The partition and the command of a message."""

    queue: str
    partition: str
    command: MappedCommand | None


def preview(spec: ir.Spec, queue: str, payload: bytes) -> Preview:
    """Return the partition and command that `queue` gives a message, computed as a broker and a worker do."""
    compiled = CompiledQueue(spec, queue)
    compiled.check(payload)
    message = decoded(payload)
    return Preview(queue, compiled.partition(message) or DEFAULT_PARTITION, compiled.command(message))
