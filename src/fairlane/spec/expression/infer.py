"""The type of an expression, and everything that is wrong with it, without a message in sight.

What a `json` holds is not known before a message comes, so nothing that is done with one is an error here.
"""

from __future__ import annotations

from typing import NamedTuple

from fairlane.spec import ir
from fairlane.spec.expression.evaluate import MACROS, is_macro
from fairlane.spec.expression.operators import FUNCTIONS, METHODS, Taken
from fairlane.spec.text import tree
from fairlane.spec.text.source import suggestion
from fairlane.spec.types import BOOL, FLOAT, INT, JSON, STRING, common, family, misfit, named

_RESULTS = {"string": STRING, "int": INT, "float": FLOAT, "bool": BOOL}
_TAKEN: dict[Taken, tuple[str, ...]] = {
    "text": ("string",),
    "sized": ("string", "list", "map"),
    "scalar": ("string", "int", "float", "bool"),
}


class Fault(NamedTuple):
    node: tree.Node
    message: str
    hint: str | None = None


def infer(node: tree.Expression, scope: ir.RecordType | None) -> tuple[ir.Type, list[Fault]]:
    """The type of an expression over a message of type `scope`; of one without a type, any name may be there."""
    inference = _Inference(scope)
    return inference.type(node), inference.faults


class _Inference:
    def __init__(self, scope: ir.RecordType | None) -> None:
        self._scope = scope
        self._items: dict[str, ir.Type] = {}
        """What macros name, inside them."""
        self.faults: list[Fault] = []

    def _fault(self, node: tree.Node, message: str, hint: str | None = None) -> ir.Type:
        """Noted once; `json` stands for what is wrong, about which nothing more is said."""
        self.faults.append(Fault(node, message, hint or None))
        return JSON

    def type(self, node: tree.Expression) -> ir.Type:
        match node:
            case tree.Literal():
                return self._literal(node)
            case tree.Name(name=name):
                return self._name(node, name)
            case tree.Member(of=of, name=word):
                return self._member(self.type(of), word)
            case tree.Index():
                return self._index(node)
            case tree.Function():
                return self._function(node)
            case tree.Unary(operator="!", of=of):
                self._must_be(of, "bool")
                return BOOL
            case tree.Unary(of=of):
                return self._must_be(of, "int", "float")
            case tree.Binary():
                return self._binary(node)
            case tree.Conditional(test=test, then=then, otherwise=otherwise):
                self._must_be(test, "bool")
                return common(self.type(then), self.type(otherwise))
            case tree.ListOf(items=items):
                types = [self.type(item) for item in items]
                return ir.ListType(items=types[0] if len(set(map(named, types))) == 1 else JSON)
            case tree.MapOf(pairs=pairs):
                return self._map(pairs)

    def _literal(self, node: tree.Literal) -> ir.Type:
        value = node.value
        if node.unit:
            return self._fault(node, "a duration is for settings; in an expression write the number")
        if value is None:
            return JSON
        if isinstance(value, str):
            return ir.EnumType(choices=(value,))
        return BOOL if isinstance(value, bool) else INT if isinstance(value, int) else FLOAT

    def _name(self, node: tree.Node, name: str) -> ir.Type:
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

    def _index(self, node: tree.Index) -> ir.Type:
        of, key = self.type(node.of), self.type(node.key)
        wanted = {"list": "int", "map": "string"}.get(family(of))
        if wanted is None and family(of) != "json":
            return self._fault(node.of, f"{named(of)} has no parts")
        if wanted and family(key) not in (wanted, "json"):
            return self._fault(node.key, f"a part of {named(of)} is named by {wanted}, not {named(key)}")
        if isinstance(of, ir.RecordType) and isinstance(key, ir.EnumType) and len(key.choices) == 1:
            word = tree.Word(text=key.choices[0], start=node.key.start, end=node.key.end)
            return self._member(of, word)
        return of.items if isinstance(of, ir.ListType) else of.values if isinstance(of, ir.MapType) else JSON

    def _map(self, pairs: tuple[tuple[tree.Expression, tree.Expression], ...]) -> ir.Type:
        fields: dict[str, ir.Type] = {}
        for key, value in pairs:
            of = self.type(value)
            if not (isinstance(key, tree.Literal) and isinstance(key.value, str)):
                self._must_be(key, "string")
                fields[""] = JSON
            else:
                fields[key.value] = of
        return ir.MapType(values=JSON) if "" in fields else ir.RecordType(fields=fields)

    def _must_be(self, node: tree.Expression, *families: str) -> ir.Type:
        found = self.type(node)
        if family(found) in (*families, "json"):
            return found
        return self._fault(node, f"this must be {' or '.join(families)}, not {named(found)}")

    def _function(self, node: tree.Function) -> ir.Type:
        name = node.name.text
        if name == "has" and node.target is None:
            return self._has(node)
        if node.target is not None and is_macro(node):
            return self._macro(node, node.target)
        known = FUNCTIONS if node.target is None else METHODS
        if name not in known:
            what, others = ("function", [*known, "has"]) if node.target is None else ("method", [*known, *MACROS])
            return self._fault(node.name, f"there is no {what} `{name}`", suggestion(name, others))
        function = known[name]
        operands = (node.target, *node.arguments) if node.target else node.arguments
        if len(operands) != len(function.takes):
            counted = len(function.takes) - (node.target is not None)
            return self._fault(node.name, f"`{name}` has {len(node.arguments)} arguments; it takes {counted}")
        for operand, taken in zip(operands, function.takes, strict=True):
            self._must_be(operand, *_TAKEN[taken])
        return _RESULTS[function.gives]

    def _macro(self, node: tree.Function, target: tree.Expression) -> ir.Type:
        name, over = node.name.text, self._must_be(target, "list", "map")
        if len(node.arguments) != 2 or not isinstance(node.arguments[0], tree.Name):
            return self._fault(node.name, f"`{name}` names each item and says what of it: `tags.{name}(tag, ...)`")
        variable, part = node.arguments
        assert isinstance(variable, tree.Name)
        item = over.items if isinstance(over, ir.ListType) else STRING if family(over) == "map" else JSON
        outside, self._items = self._items, {**self._items, variable.name: item}
        result = self.type(part) if name == "map" else self._must_be(part, "bool")
        self._items = outside
        return ir.ListType(items=result if name == "map" else item) if name in ("map", "filter") else BOOL

    def _has(self, node: tree.Function) -> ir.Type:
        if len(node.arguments) == 1 and isinstance(node.arguments[0], tree.Member):
            self.type(node.arguments[0])
        else:
            self._fault(node, "`has` asks for a part of something: `has(payload.title)`")
        return BOOL

    def _binary(self, node: tree.Binary) -> ir.Type:
        if node.operator in ("&&", "||"):
            self._must_be(node.left, "bool")
            self._must_be(node.right, "bool")
            return BOOL
        if node.operator in ("==", "!="):
            return self._equality(node)
        if node.operator == "in":
            self.type(node.left)
            self._must_be(node.right, "list", "map")
            return BOOL
        if node.operator in ("<", "<=", ">", ">="):
            self._alike(node, "int", "float", "string")
            return BOOL
        return self._arithmetic(node)

    def _equality(self, node: tree.Binary) -> ir.Type:
        left, right = self.type(node.left), self.type(node.right)
        never = misfit(left, right) and misfit(right, left)
        if isinstance(left, ir.EnumType) and isinstance(right, ir.EnumType):
            if not set(left.choices) & set(right.choices):
                hint = suggestion(right.choices[0], left.choices)
                self._fault(node.right, f'"{right.choices[0]}" is none of {named(left)}', hint)
        elif never:
            self._fault(node, f"{named(left)} and {named(right)} are never equal")
        return BOOL

    def _alike(self, node: tree.Binary, *families: str) -> tuple[ir.Type, ir.Type]:
        left, right = self._must_be(node.left, *families), self._must_be(node.right, *families)
        kinds = {family(left), family(right)} - {"json"}
        if len(kinds) == 2 and kinds != {"int", "float"}:
            self._fault(node, f"`{node.operator}` is not for {named(left)} and {named(right)}")
            return JSON, JSON
        return left, right

    def _arithmetic(self, node: tree.Binary) -> ir.Type:
        families = {"+": ("int", "float", "string", "list"), "%": ("int",)}.get(node.operator, ("int", "float"))
        left, right = self._alike(node, *families)
        kinds = {family(left), family(right)}
        if kinds == {"string"}:
            return STRING
        if "json" in kinds:
            return JSON
        return common(left, right)
