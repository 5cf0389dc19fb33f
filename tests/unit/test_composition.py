"""The broker is composed: its facade stays small, and no component is changed from outside after its construction."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import fairlane
from fairlane.broker.broker import Broker

SRC = Path(fairlane.__file__).parent
NAMES_MAX = 46
STATE = {"Claim", "ClientConnection", "Context"}
"""Classes with asynchronous methods whose attributes are the state of one message, claim or connection."""
TIED = {"Database.codec"}
"""The codec of a store reads its keys through the database, which needs the codec for rows."""


async def test_a_broker_has_few_public_names() -> None:
    async with Broker.open("sqlite:///:memory:") as broker:
        names = [name for name in dir(broker) if not name.startswith("_")]
        assert len(names) <= NAMES_MAX, sorted(names)


class Source:
    """The classes of a source tree, with the types of their attributes as far as constructors tell them. A component
    is a class with asynchronous methods: others hold data."""

    def __init__(self, files: dict[str, str]) -> None:
        self.trees = {name: ast.parse(text) for name, text in files.items()}
        self.components: set[str] = set()
        self.attributes: dict[str, dict[str, str]] = {}
        for tree in self.trees.values():
            for node in ast.walk(tree):
                if isinstance(node, ast.ClassDef):
                    self._add(node)

    def _add(self, node: ast.ClassDef) -> None:
        if any(isinstance(item, ast.AsyncFunctionDef) for item in node.body):
            self.components.add(node.name)
        found = self.attributes.setdefault(node.name, {})
        for item in node.body:
            if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name):
                found[item.target.id] = _class_of(item.annotation)
            if not isinstance(item, ast.FunctionDef) or item.name != "__init__":
                continue
            given = _parameters(item)
            for target, value in _assignments(item):
                if isinstance(target, ast.Attribute) and _is_self(target.value):
                    found[target.attr] = _type_of(value, given)

    def violations(self) -> list[str]:
        """Return every assignment to an attribute of a component that the function did not construct itself."""
        found = []
        for name, tree in self.trees.items():
            owners = {
                item: node.name for node in ast.walk(tree) if isinstance(node, ast.ClassDef) for item in node.body
            }
            for node in ast.walk(tree):
                if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                    continue
                known = _parameters(node)
                for target, value in _assignments(node):
                    if isinstance(target, ast.Name):
                        known[target.id] = "" if isinstance(value, ast.Call) else _type_of(value, known)
                    elif isinstance(target, ast.Attribute) and not _is_self(target.value):
                        held = self._resolve(target.value, known, owners.get(node, ""))
                        if held in self.components - STATE and f"{held}.{target.attr}" not in TIED:
                            found.append(f"{name}:{target.lineno}: {ast.unparse(target)} of {held}")
        return sorted(set(found))

    def _resolve(self, node: ast.expr, known: dict[str, str], owner: str) -> str:
        """Return the class of an expression, empty if unknown."""
        if isinstance(node, ast.Name):
            return known.get(node.id, "")
        if isinstance(node, ast.Attribute):
            held = owner if _is_self(node.value) else self._resolve(node.value, known, owner)
            return self.attributes.get(held, {}).get(node.attr, "")
        return ""


def _is_self(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id in ("self", "cls")


def _class_of(annotation: ast.expr | None) -> str:
    """Return the class that an annotation names, without `| None` and parameters."""
    match annotation:
        case ast.Constant(value=str(text)):
            return _class_of(ast.parse(text, mode="eval").body)
        case ast.BinOp(left=left, op=ast.BitOr()):
            return _class_of(left)
        case ast.Subscript(value=value):
            return _class_of(value)
        case ast.Attribute(attr=name) | ast.Name(id=name):
            return name
    return ""


def _parameters(function: ast.FunctionDef | ast.AsyncFunctionDef) -> dict[str, str]:
    given = function.args
    return {one.arg: _class_of(one.annotation) for one in (*given.posonlyargs, *given.args, *given.kwonlyargs)}


def _assignments(function: ast.AST) -> Iterator[tuple[ast.expr, ast.expr | None]]:
    for node in ast.walk(function):
        if isinstance(node, ast.Assign):
            for target in node.targets:
                if isinstance(target, ast.Tuple):
                    values = node.value.elts if isinstance(node.value, ast.Tuple) else [None] * len(target.elts)
                    yield from zip(target.elts, values, strict=True)
                else:
                    yield target, node.value
        elif isinstance(node, ast.AnnAssign):
            yield node.target, node.value


def _type_of(value: ast.expr | None, known: dict[str, str]) -> str:
    match value:
        case ast.Name(id=name):
            return known.get(name, "")
        case ast.Call(func=ast.Name(id=name)) if name[:1].isupper() or name[:2].strip("_")[:1].isupper():
            return name
        case ast.BoolOp(values=[*_, last]):
            return _type_of(last, known)
    return ""


def test_a_late_assignment_is_found() -> None:
    late = """
class Pump:
    def __init__(self) -> None:
        self.level = 0
    async def run(self) -> None: ...

class House:
    def __init__(self, pump: Pump | None) -> None:
        self._pump = pump
        self.own = Pump()
    def fill(self, other: Pump) -> None:
        self._pump.level = 1
        other.level, self.own.level = 2, 3
        new = Pump()
        new.level = 4
"""
    found = [line.partition(": ")[2] for line in Source({"x": late}).violations()]
    assert found == ["self._pump.level of Pump", "other.level of Pump", "self.own.level of Pump"]


def test_no_component_is_changed_from_outside_after_its_construction() -> None:
    files = {path.relative_to(SRC).as_posix(): path.read_text() for path in SRC.rglob("*.py")}
    assert Source(files).violations() == []
