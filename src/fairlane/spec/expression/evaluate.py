"""Expressions made into functions once, and called for each message.

Nothing is interpreted per message: each node is a closure over those of its parts, and a path like
`payload.incident.id` is one loop over keys. No text is ever given to Python to evaluate.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final, TypeAlias

import msgspec

from fairlane.errors import ExpressionFailed, ExpressionTooCostly
from fairlane.spec import ir
from fairlane.spec.expression.operators import (
    BINARY,
    FUNCTIONS,
    ITEM,
    METHODS,
    Mismatch,
    TooCostly,
    begin,
    check_size,
    element,
    kind,
    negative,
    size_of,
    spend,
    truth,
)
from fairlane.spec.text import tree
from fairlane.spec.text.parser import parse_expression
from fairlane.spec.text.source import Source

Message: TypeAlias = dict[str, Any]
Evaluate: TypeAlias = Callable[[Message], Any]
MACROS: Final = ("exists", "all", "filter", "map")
"""`tags.exists(tag, tag == "urgent")` asks of each item of a list, or key of a map."""
_WRONG = (Mismatch, KeyError, OverflowError, ValueError, RecursionError)


def compile_expression(text: str) -> Evaluate:
    """A function of a message, from an expression that `infer` found nothing wrong with.

    It raises ExpressionFailed, with the expression's text, where a message has not what is needed, and
    ExpressionTooCostly where it would take too much.
    """
    evaluate = _compile(parse_expression(Source("expression", text)))

    def expression(message: Message) -> Any:
        begin()
        try:
            return evaluate(message)
        except _WRONG as error:
            raise ExpressionFailed(f"`{text}`: {_reason(error)}") from None
        except TooCostly as error:
            raise ExpressionTooCostly(f"`{text}`: {error}") from None

    return expression


def compile_mapping(mapping: ir.Mapping) -> Callable[[Message], dict[str, Any]]:
    """A function from a message to the input of its command; raises ExpressionFailed as an expression does."""
    parts = [(name, _compile(parse_expression(Source(name, text)))) for name, text in mapping.fields.items()]

    def mapped(message: Message) -> dict[str, Any]:
        built = {}
        name = ""
        begin()
        try:
            for name, evaluate in parts:
                built[name] = evaluate(message)
            check_size(built)
        except TooCostly as error:
            raise ExpressionTooCostly(f"{name}: `{mapping.fields[name]}`: {error}") from None
        except _WRONG as error:
            raise ExpressionFailed(f"{name}: `{mapping.fields[name]}`: {_reason(error)}") from None
        return built

    return mapped


def _reason(error: Exception) -> str:
    if isinstance(error, KeyError):
        return f"there is no `{error.args[0]}`"
    if isinstance(error, RecursionError):
        return "the value is nested too deeply"
    return str(error) if isinstance(error, Mismatch) else "the number is too large"


def _compile(node: tree.Expression) -> Evaluate:
    match node:
        case tree.Literal(value=value):
            return lambda message: value
        case tree.Name() | tree.Member():
            return _path(node)
        case tree.Index(of=of, key=key):
            container, index = _compile(of), _compile(key)
            return lambda message: element(container(message), index(message))
        case tree.Function():
            return _function(node)
        case tree.Unary(operator=symbol, of=of):
            operand = _compile(of)
            if symbol == "!":
                return lambda message: not truth(operand(message))
            return lambda message: negative(operand(message))
        case tree.Binary(operator="&&" | "||"):
            return _logic(node)
        case tree.Binary():
            return _binary(node)
        case tree.Conditional(test=test, then=then, otherwise=otherwise):
            return _conditional(_compile(test), _compile(then), _compile(otherwise))
        case tree.ListOf(items=items):
            made = [_compile(item) for item in items]
            return lambda message: [item(message) for item in made]
        case tree.MapOf(pairs=pairs):
            both = [(_compile(key), _compile(value)) for key, value in pairs]
            return lambda message: {_key(key(message)): value(message) for key, value in both}


def _path(node: tree.Name | tree.Member) -> Evaluate:
    """`a.b.c`: the way down a message, key by key."""
    keys: list[str] = []
    of: tree.Expression = node
    while isinstance(of, tree.Member):
        keys.insert(0, of.name.text)
        of = of.of
    if isinstance(of, tree.Name):
        return _steps([of.name, *keys])
    container, steps = _compile(of), _steps(keys)
    return lambda message: steps(container(message))


def _steps(keys: list[str]) -> Evaluate:
    def walk(value: Any) -> Any:
        for key in keys:
            if type(value) is not dict:
                raise Mismatch(f"{kind(value)} has no `{key}`")
            value = value[key]
        return value

    return walk


def _binary(node: tree.Binary) -> Evaluate:
    act, left, right = BINARY[node.operator], _compile(node.left), _compile(node.right)
    if node.operator == "==" and isinstance(node.right, tree.Literal) and isinstance(node.right.value, str):
        # By far the most frequent comparison; nothing but the same text equals a text.
        wanted = node.right.value
        return lambda message: left(message) == wanted
    return lambda message: act(left(message), right(message))


def _logic(node: tree.Binary) -> Evaluate:
    """In CEL the side that decides, decides: an error on the other one does not matter, whichever comes first."""
    left, right, deciding = _compile(node.left), _compile(node.right), node.operator == "||"

    def decide(message: Message) -> bool:
        try:
            if truth(left(message)) is deciding:
                return deciding
        except _WRONG:
            if truth(right(message)) is deciding:
                return deciding
            raise
        return truth(right(message))

    return decide


def _conditional(test: Evaluate, then: Evaluate, otherwise: Evaluate) -> Evaluate:
    def choose(message: Message) -> Any:
        decided = test(message)
        if decided is True:
            return then(message)
        if decided is False:
            return otherwise(message)
        return truth(decided)

    return choose


def _function(node: tree.Function) -> Evaluate:
    if node.name.text == "has" and node.target is None:
        return _has(node)
    if node.target is not None and is_macro(node):
        return _macro(node, _compile(node.target), _compile(node.arguments[1]))
    known = (FUNCTIONS if node.target is None else METHODS)[node.name.text].call
    operands = [_compile(each) for each in ((node.target, *node.arguments) if node.target else node.arguments)]
    if len(operands) == 1:
        [only] = operands
        return lambda message: known(only(message))
    return lambda message: known(*(operand(message) for operand in operands))


def is_macro(node: tree.Function) -> bool:
    return node.target is not None and node.name.text in MACROS


def _macro(node: tree.Function, over: Evaluate, part: Evaluate) -> Evaluate:
    """A function of a message; `over` gives the items, and `part` is evaluated with each of them by its name."""
    variable, body = node.arguments
    assert isinstance(variable, tree.Name)
    # An item costs what its part does, so that no nesting of macros takes longer than one.
    name, cost = variable.name, ITEM * _nodes(body)

    def each(message: Message) -> Iterator[tuple[Any, Message]]:
        items = over(message)
        if type(items) is not list and type(items) is not dict:
            raise Mismatch(f"{node.name.text} is of a list or a map, not {kind(items)}")
        spend(size_of(message))
        scope = dict(message)
        for item in items:
            spend(cost)
            scope[name] = item
            yield item, scope

    def decide(message: Message) -> bool:
        """As `||` or `&&` between all of them: an error does not matter where another one decides."""
        failed: Exception | None = None
        for _, scope in each(message):
            try:
                if truth(part(scope)) is deciding:
                    return deciding
            except _WRONG as error:
                failed = error
        if failed is not None:
            raise failed
        return not deciding

    deciding = node.name.text == "exists"
    if node.name.text == "filter":
        return lambda message: [item for item, scope in each(message) if truth(part(scope))]
    if node.name.text == "map":
        return lambda message: [part(scope) for _, scope in each(message)]
    return decide


def _nodes(node: Any) -> int:
    if isinstance(node, tuple):
        return sum(map(_nodes, node))
    if isinstance(node, tree.Node):
        return 1 + sum(map(_nodes, msgspec.structs.astuple(node)))
    return 0


def _has(node: tree.Function) -> Evaluate:
    """Whether the last part of a path is there; the parts before it must be."""
    [member] = node.arguments
    assert isinstance(member, tree.Member)
    container, name = _compile(member.of), member.name.text

    def has(message: Message) -> bool:
        found = container(message)
        if type(found) is not dict:
            raise Mismatch(f"{kind(found)} has no `{name}`")
        return name in found

    return has


def _key(key: Any) -> str:
    if type(key) is not str:
        raise Mismatch(f"the keys of a map are strings, not {kind(key)}")
    return key
