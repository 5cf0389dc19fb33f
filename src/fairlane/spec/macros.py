"""Macros of expressions: `tags.exists(tag, tag == "urgent")` asks of each item of a list, or key of a map."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

import msgspec

from fairlane.spec import tree
from fairlane.spec.budget import ITEM, size_of, spend
from fairlane.spec.operators import Mismatch, kind, truth

MACROS: Final = ("exists", "all", "filter", "map")

Evaluate = Callable[[dict[str, Any]], Any]


def is_macro(node: tree.Function) -> bool:
    return node.target is not None and node.name.text in MACROS


def macro(node: tree.Function, over: Evaluate, part: Evaluate, wrong: tuple[type[Exception], ...]) -> Evaluate:
    """A function of a message; `over` gives the items, and `part` is evaluated with each of them by its name."""
    variable, body = node.arguments
    assert isinstance(variable, tree.Name)
    # An item costs what its part does, so that no nesting of macros takes longer than one.
    name, cost = variable.name, ITEM * _nodes(body)

    def each(message: dict[str, Any]) -> Iterator[tuple[Any, dict[str, Any]]]:
        items = over(message)
        if type(items) is not list and type(items) is not dict:
            raise Mismatch(f"{node.name.text} is of a list or a map, not {kind(items)}")
        spend(size_of(message))
        scope = dict(message)
        for item in items:
            spend(cost)
            scope[name] = item
            yield item, scope

    def decide(message: dict[str, Any]) -> bool:
        """As `||` or `&&` between all of them: an error does not matter where another one decides."""
        failed: Exception | None = None
        for _, scope in each(message):
            try:
                if truth(part(scope)) is deciding:
                    return deciding
            except wrong as error:
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
