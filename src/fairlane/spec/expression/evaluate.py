"""Compiles expressions: infers the type of each part and builds one function, which is called for each message.

Type errors are found without a message. The content of `json` is only known at run time, so no operation on it is an
error here. Nothing is interpreted per message: each node is a closure over its parts, and a path such as
`payload.incident.id` is one loop over keys. No text is ever evaluated by Python.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple, TypeAlias

import msgspec

from fairlane.errors import ExpressionFailed, ExpressionTooCostly
from fairlane.spec import ir
from fairlane.spec.expression import operators
from fairlane.spec.expression.operators import (
    BINARY,
    FUNCTIONS,
    ITEM,
    METHODS,
    Mismatch,
    TooCostly,
    kind,
    reset_budget,
    truth,
)
from fairlane.spec.text import tree
from fairlane.spec.text.parser import parse_expression
from fairlane.spec.text.source import SourceText, suggestion
from fairlane.spec.types import BOOL, FLOAT, INT, JSON, STRING, common, family, misfit, named

Message: TypeAlias = dict[str, Any]
Evaluate: TypeAlias = Callable[[Message], Any]
MACROS: Final = ("exists", "all", "filter", "map")
"""Macros such as `tags.exists(tag, tag == "urgent")` run over the items of a list or the keys of a map."""
_WRONG = (Mismatch, KeyError, OverflowError, ValueError, RecursionError)


def compile_expression(text: str) -> Evaluate:
    """Compile an expression that passed `infer` to a function of a message.

    The function raises ExpressionFailed, with the expression's text, if the message lacks something, and
    ExpressionTooCostly if it exceeds the budget.
    """
    evaluate = _compile(text)

    def expression(message: Message) -> Any:
        reset_budget()
        try:
            return evaluate(message)
        except _WRONG as error:
            raise ExpressionFailed(f"`{text}`: {_reason(error)}") from None
        except TooCostly as error:
            raise ExpressionTooCostly(f"`{text}`: {error}") from None

    return expression


def compile_mapping(mapping: ir.Mapping) -> Callable[[Message], dict[str, Any]]:
    """Return a function that computes the input of a command from a message.

    It raises the errors of a compiled expression.
    """
    parts = [(name, _compile(text)) for name, text in mapping.fields.items()]

    def mapped(message: Message) -> dict[str, Any]:
        built = {}
        name = ""
        reset_budget()
        try:
            for name, evaluate in parts:
                built[name] = evaluate(message)
            operators.check_size(built)
        except TooCostly as error:
            raise ExpressionTooCostly(f"{name}: `{mapping.fields[name]}`: {error}") from None
        except _WRONG as error:
            raise ExpressionFailed(f"{name}: `{mapping.fields[name]}`: {_reason(error)}") from None
        return built

    return mapped


def _compile(text: str) -> Evaluate:
    return _Compiler(None).compile(parse_expression(SourceText("expression", text))).evaluate


def _reason(error: Exception) -> str:
    if isinstance(error, KeyError):
        return f"there is no `{error.args[0]}`"
    if isinstance(error, RecursionError):
        return "the value is nested too deeply"
    return str(error) if isinstance(error, Mismatch) else "the number is too large"


class Fault(NamedTuple):
    node: tree.SyntaxNode
    message: str
    hint: str | None = None


def infer(node: tree.Expression, scope: ir.RecordType | None) -> tuple[ir.Type, list[Fault]]:
    """Return the type of an expression over messages of type `scope`, and its faults.

    Without a scope any name is allowed.
    """
    compiler = _Compiler(scope)
    return compiler.compile(node).type, compiler.faults


class _Typed(NamedTuple):
    type: ir.Type
    evaluate: Evaluate


class _Compiler:
    def __init__(self, scope: ir.RecordType | None) -> None:
        self._scope = scope
        self._items: dict[str, ir.Type] = {}
        """Types of the variables of the surrounding macros."""
        self.faults: list[Fault] = []

    def _fault(self, node: tree.SyntaxNode, message: str, hint: str | None = None) -> ir.Type:
        """Record a fault and return the type `json`, so that one fault causes no further ones."""
        self.faults.append(Fault(node, message, hint or None))
        return JSON

    def compile(self, node: tree.Expression) -> _Typed:
        match node:
            case tree.Literal(value=value):
                return _Typed(self._literal(node), lambda message: value)
            case tree.Name(name=name):
                return _Typed(self._name(node, name), operators.walk((name,)))
            case tree.Member(of=of, name=word):
                container = self.compile(of)
                type_ = self._member(container.type, word)
                if keys := tree.keys_of(node):
                    return _Typed(type_, operators.walk(keys))
                step = operators.walk((word.text,))
                return _Typed(type_, lambda message: step(container.evaluate(message)))
            case tree.Index(of=of, key=key):
                return self._index(node, self.compile(of), self.compile(key))
            case tree.Function(name=word, target=None) if word.text == "has":
                return self._has(node)
            case tree.Function(target=target) if target is not None and is_macro(node):
                return self._macro(node, self._must_be(target, "list", "map"))
            case tree.Function():
                return self._function(node)
            case tree.Unary(operator="!", of=of):
                operand = self._must_be(of, "bool").evaluate
                return _Typed(BOOL, lambda message: not truth(operand(message)))
            case tree.Unary(of=of):
                type_, operand = self._must_be(of, "int", "float")
                return _Typed(type_, lambda message: operators.negative(operand(message)))
            case tree.Binary(operator="&&" | "||"):
                return _Typed(
                    BOOL, _logic(node, *(self._must_be(of, "bool").evaluate for of in (node.left, node.right)))
                )
            case tree.Binary():
                return self._binary(node)
            case tree.Conditional(test=test, then=then, otherwise=otherwise):
                asked, yes, no = self._must_be(test, "bool"), self.compile(then), self.compile(otherwise)
                return _Typed(common(yes.type, no.type), _choice(asked.evaluate, yes.evaluate, no.evaluate))
            case tree.ListOf(items=items):
                made = [self.compile(item) for item in items]
                alike = len({named(item.type) for item in made}) == 1
                evaluates = [item.evaluate for item in made]
                return _Typed(
                    ir.ListType(items=made[0].type if alike else JSON),
                    lambda message: [evaluate(message) for evaluate in evaluates],
                )
            case tree.MapOf(pairs=pairs):
                return self._map(pairs)

    def _literal(self, node: tree.Literal) -> ir.Type:
        value = node.value
        if node.unit:
            return self._fault(node, "durations are only for settings; write the number in an expression")
        if value is None:
            return JSON
        if isinstance(value, str):
            return ir.EnumType(choices=(value,))
        return BOOL if isinstance(value, bool) else INT if isinstance(value, int) else FLOAT

    def _name(self, node: tree.SyntaxNode, name: str) -> ir.Type:
        if name in self._items:
            return self._items[name]
        if self._scope is None:
            return JSON
        if name in self._scope.fields:
            return self._scope.fields[name]
        return self._fault(node, f"the message has no `{name}`", suggestion(name, self._scope.fields))

    def _member(self, of: ir.Type, word: tree.Word) -> ir.Type:
        match of:
            case ir.RecordType(fields=fields):
                if word.text in fields:
                    return fields[word.text]
                return self._fault(word, f"there is no `{word.text}`", suggestion(word.text, fields))
            case ir.MapType(values=values):
                return values
        if family(of) == "json":
            return JSON
        return self._fault(word, f"{named(of)} has no `{word.text}`")

    def _index(self, node: tree.Index, container: _Typed, index: _Typed) -> _Typed:
        of, key = container.type, index.type
        type_: ir.Type = JSON
        wanted = {"list": "int", "map": "string"}.get(family(of))
        if wanted is None and family(of) != "json":
            self._fault(node.of, f"{named(of)} has no parts")
        elif wanted and family(key) not in (wanted, "json"):
            self._fault(node.key, f"a part of {named(of)} is named by {wanted}, not {named(key)}")
        elif isinstance(of, ir.RecordType) and isinstance(key, ir.EnumType) and len(key.choices) == 1:
            type_ = self._member(of, tree.Word(text=key.choices[0], start=node.key.start, end=node.key.end))
        elif isinstance(of, ir.ListType | ir.MapType):
            type_ = of.items if isinstance(of, ir.ListType) else of.values
        return _Typed(type_, lambda message: operators.element(container.evaluate(message), index.evaluate(message)))

    def _map(self, pairs: tuple[tuple[tree.Expression, tree.Expression], ...]) -> _Typed:
        fields: dict[str, ir.Type] = {}
        made: list[tuple[Evaluate, Evaluate]] = []
        for key, value in pairs:
            of = self.compile(value)
            fields[str(key.value) if isinstance(key, tree.Literal) and isinstance(key.value, str) else ""] = of.type
            made.append((self._must_be(key, "string").evaluate, of.evaluate))
        # A key that is only known at run time is replaced by an empty one.
        type_ = ir.MapType(values=JSON) if "" in fields else ir.RecordType(fields=fields)
        return _Typed(type_, lambda message: {operators.map_key(key(message)): value(message) for key, value in made})

    def _must_be(self, node: tree.Expression, *families: str) -> _Typed:
        found = self.compile(node)
        if family(found.type) in (*families, "json"):
            return found
        return _Typed(
            self._fault(node, f"this must be {' or '.join(families)}, not {named(found.type)}"), found.evaluate
        )

    def _function(self, node: tree.Function) -> _Typed:
        name, known = node.name.text, FUNCTIONS if node.target is None else METHODS
        if name not in known:
            what, others = ("function", [*known, "has"]) if node.target is None else ("method", [*known, *MACROS])
            return _Typed(self._fault(node.name, f"there is no {what} `{name}`", suggestion(name, others)), _never)
        call, takes, gives = known[name]
        operands = (node.target, *node.arguments) if node.target else node.arguments
        if len(operands) != len(takes):
            counted = len(takes) - (node.target is not None)
            message = f"`{name}` has {len(node.arguments)} arguments; it takes {counted}"
            return _Typed(self._fault(node.name, message), _never)
        parts = [self._must_be(one, *families).evaluate for one, families in zip(operands, takes, strict=True)]
        if len(parts) == 1:
            [only] = parts
            return _Typed(gives, lambda message: call(only(message)))
        return _Typed(gives, lambda message: call(*[part(message) for part in parts]))

    def _has(self, node: tree.Function) -> _Typed:
        """Compile `has`: only the last member of a path may be missing."""
        if len(node.arguments) != 1 or not isinstance(member := node.arguments[0], tree.Member):
            self._fault(node, "`has` needs the member of something: `has(payload.title)`")
            return _Typed(BOOL, _never)
        container, name = self.compile(member.of), member.name.text
        self._member(container.type, member.name)

        def has(message: Message) -> bool:
            found = container.evaluate(message)
            if type(found) is not dict:
                raise Mismatch(f"{kind(found)} has no `{name}`")
            return name in found

        return _Typed(BOOL, has)

    def _macro(self, node: tree.Function, over: _Typed) -> _Typed:
        name = node.name.text
        if len(node.arguments) != 2 or not isinstance(variable := node.arguments[0], tree.Name):
            message = f"`{name}` needs a variable and an expression: `tags.{name}(tag, ...)`"
            return _Typed(self._fault(node.name, message), _never)
        of = over.type
        item = of.items if isinstance(of, ir.ListType) else STRING if family(of) == "map" else JSON
        outside, self._items = self._items, {**self._items, variable.name: item}
        part = self.compile(node.arguments[1]) if name == "map" else self._must_be(node.arguments[1], "bool")
        self._items = outside
        type_ = ir.ListType(items=part.type if name == "map" else item) if name in ("map", "filter") else BOOL
        return _Typed(type_, _each(node, variable.name, over.evaluate, part.evaluate))

    def _binary(self, node: tree.Binary) -> _Typed:
        act, takes = BINARY[node.operator]
        if node.operator in ("==", "!="):
            left, right = self.compile(node.left), self.compile(node.right)
            self._check_equality(node, left.type, right.type)
            type_: ir.Type = BOOL
        elif node.operator == "in":
            left, right, type_ = self.compile(node.left), self._must_be(node.right, *takes), BOOL
        else:
            left, right = self._must_be(node.left, *takes), self._must_be(node.right, *takes)
            type_ = self._alike(node, left.type, right.type)
        one, other = left.evaluate, right.evaluate
        if node.operator == "==" and isinstance(node.right, tree.Literal) and isinstance(node.right.value, str):
            # The most frequent comparison by far: a string equals only the same string.
            wanted = node.right.value
            return _Typed(type_, lambda message: one(message) == wanted)
        return _Typed(type_, lambda message: act(one(message), other(message)))

    def _check_equality(self, node: tree.Binary, left: ir.Type, right: ir.Type) -> None:
        if isinstance(left, ir.EnumType) and isinstance(right, ir.EnumType):
            if not set(left.choices) & set(right.choices):
                hint = suggestion(right.choices[0], left.choices)
                self._fault(node.right, f'"{right.choices[0]}" is not one of {named(left)}', hint)
        elif misfit(left, right) and misfit(right, left):
            self._fault(node, f"{named(left)} and {named(right)} are never equal")

    def _alike(self, node: tree.Binary, left: ir.Type, right: ir.Type) -> ir.Type:
        """Return the type of an ordering or of arithmetic on two numbers, two strings or two lists."""
        kinds = {family(left), family(right)}
        if len(kinds - {"json"}) == 2 and kinds != {"int", "float"}:
            self._fault(node, f"`{node.operator}` does not work on {named(left)} and {named(right)}")
            kinds = {"json"}
        if node.operator in ("<", "<=", ">", ">="):
            return BOOL
        return STRING if kinds == {"string"} else JSON if "json" in kinds else common(left, right)


def is_macro(node: tree.Function) -> bool:
    return node.target is not None and node.name.text in MACROS


def _never(message: Message) -> Any:
    raise Mismatch("this cannot be evaluated")


def _choice(test: Evaluate, then: Evaluate, otherwise: Evaluate) -> Evaluate:
    def choose(message: Message) -> Any:
        decided = test(message)
        if decided is True:
            return then(message)
        return otherwise(message) if decided is False else truth(decided)

    return choose


def _logic(node: tree.Binary, left: Evaluate, right: Evaluate) -> Evaluate:
    """Compile `&&` or `||`. As in CEL, an error on one side does not matter if the other side decides."""
    deciding = node.operator == "||"

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


def _each(node: tree.Function, name: str, over: Evaluate, part: Evaluate) -> Evaluate:
    """Compile a macro: `over` yields the items, and `part` is evaluated for each of them."""
    macro, deciding = node.name.text, node.name.text == "exists"
    # Each item is charged for its part, so nested macros have the same budget as one.
    cost = ITEM * _nodes(node.arguments[1])

    def each(message: Message) -> Iterator[tuple[Any, Message]]:
        items = over(message)
        if type(items) is not list and type(items) is not dict:
            raise Mismatch(f"{macro} needs a list or a map, not {kind(items)}")
        operators.spend(operators.size_of(message))
        scope = dict(message)
        for item in items:
            operators.spend(cost)
            scope[name] = item
            yield item, scope

    def decide(message: Message) -> bool:
        """Combine all results with `||` or `&&`. An error does not matter if another result decides."""
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

    if macro == "filter":
        return lambda message: [item for item, scope in each(message) if truth(part(scope))]
    if macro == "map":
        return lambda message: [part(scope) for _, scope in each(message)]
    return decide


def _nodes(node: Any) -> int:
    if isinstance(node, tuple):
        return sum(map(_nodes, node))
    return 1 + sum(map(_nodes, msgspec.structs.astuple(node))) if isinstance(node, tree.SyntaxNode) else 0
