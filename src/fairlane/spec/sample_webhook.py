"""Sample bodies of webhooks: the sender's sample with every field that the spec reads."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from functools import partial
from typing import Any

from fairlane.spec import ir
from fairlane.spec.expression.evaluate import is_macro
from fairlane.spec.text import tree
from fairlane.spec.text.parser import parse_expression
from fairlane.spec.text.source import SourceText

Path = tuple[str, ...]
_keys = partial(tree.keys_of, index=True)
_COMPARED = ("==", "<=", ">=", "+", "-", "*", "/", "%")
_TEXTS = ("startsWith", "endsWith", "contains")
_SCALARS: dict[str, Any] = {
    "json": {},
    "int": 1,
    "float": 1.5,
    "bool": True,
    "time": "2026-01-31T12:00:00Z",
    "uuid": "0192f0c1-0000-7000-8000-000000000000",
    "bytes": "c2FtcGxl",
}


def sample_body(spec: ir.Spec, webhook: ir.WebhookSpec, sent: dict[str, Any]) -> dict[str, Any]:
    """Return a copy of `sent` with the fields that the expressions and types of the webhook and its queue need."""
    body = copy.deepcopy(sent)
    queue = spec.queues.get(webhook.queue or "")
    if queue is not None and queue.message_type is not None:
        payload = queue.message_type.fields.get("payload")
        if isinstance(payload, ir.RecordType):
            _merge(body, _of_type(payload, ""), over=True)
    if webhook.format == "cloudevents":
        body["specversion"] = "1.0"
    if webhook.on_type is not None:
        body["type"] = webhook.on_type
    wanted: dict[Path, Any] = {}
    for text, type_ in _expressions(spec, webhook, queue):
        node = parse_expression(SourceText("expression", text))
        if type_ is not None:
            wanted |= {path: _of_type(type_, path[-1]) for path in _results(node)}
        for found, value in _reads(node):
            wanted.setdefault(found, value)
    # Values that an expression compares with are more useful than fields that are only read.
    for path, value in sorted(wanted.items(), key=lambda read: read[1] is None):
        if path[0] == "payload" and len(path) > 1:
            more: Any = f"sample {path[-1]}" if value is None else value
            for key in path[:0:-1]:
                more = {key: more}
            _merge(body, more, over=False)
    return body


def added_to(sent: dict[str, Any], body: dict[str, Any], path: str = "payload") -> Iterator[str]:
    """Yield the paths that are in `body` but not in `sent`."""
    for name, value in body.items():
        if name not in sent:
            yield f"{path}.{name}"
        elif isinstance(value, dict) and isinstance(sent[name], dict):
            yield from added_to(sent[name], value, f"{path}.{name}")


def _expressions(
    spec: ir.Spec, webhook: ir.WebhookSpec, queue: ir.QueueSpec | None
) -> Iterator[tuple[str, ir.Type | None]]:
    """Yield each expression with the type of its value, if that is known."""
    for mapping in (webhook.command, queue.map_to if queue else None):
        if mapping is not None:
            declared = spec.commands.get(mapping.command)
            types = declared.input.fields if declared and declared.input else {}
            for name, text in mapping.fields.items():
                yield text, types.get(name)
    if queue is not None and queue.key is not None:
        yield queue.key, None
    if isinstance(webhook.idempotency, ir.ExpressionKey):
        yield webhook.idempotency.expression, None


def _results(node: tree.Expression) -> Iterator[Path]:
    """Yield the paths that an expression may evaluate to."""
    if isinstance(node, tree.Conditional):
        yield from _results(node.then)
        yield from _results(node.otherwise)
    elif path := _keys(node):
        yield path


def _reads(node: Any) -> Iterator[tuple[Path, Any]]:
    """Yield the paths in an expression, each with a suitable value if the expression compares it with one."""
    if isinstance(node, tree.Binary) and node.operator in _COMPARED:
        for one, other in ((node.left, node.right), (node.right, node.left)):
            if (path := _keys(one)) and isinstance(other, tree.Literal):
                yield path, other.value
    if isinstance(node, tree.Function) and node.target is not None and node.name.text in _TEXTS:
        [argument] = node.arguments
        if (path := _keys(node.target)) and isinstance(argument, tree.Literal):
            yield path, argument.value
    if isinstance(node, tree.Function) and is_macro(node):
        variable, part = node.arguments
        if path := _keys(node.target):
            yield path, []
        yield from _reads(node.target)
        yield from (read for read in _reads(part) if read[0][:1] != _keys(variable))
    elif path := _keys(node):
        yield path, None
    elif isinstance(node, tree.SyntaxNode):
        for name in node.__struct_fields__:
            yield from _reads(getattr(node, name))
    elif isinstance(node, tuple):
        for part in node:
            yield from _reads(part)


def _of_type(type_: ir.Type, name: str) -> Any:
    match type_:
        case ir.Scalar(of="string"):
            return f"sample {name}".strip()
        case ir.Scalar(of=of):
            return _SCALARS[of]
        case ir.ListType(items=items):
            return [_of_type(items, name)]
        case ir.EnumType(choices=choices):
            return choices[0]
        case ir.RecordType(fields=fields):
            return {inner: _of_type(of, inner) for inner, of in fields.items() if not of.optional}
        case ir.MapType():
            return {}


def _merge(body: dict[str, Any], more: dict[str, Any], *, over: bool) -> None:
    """Merge missing members into a body. With `over` also replaces existing ones."""
    for key, value in more.items():
        mine = body.get(key)
        if isinstance(mine, dict) and isinstance(value, dict):
            _merge(mine, value, over=over)
        elif over or key not in body:
            body[key] = value
