"""The ground plan holds: short files, routes that stop at the facade, no class that only hands calls on, one tree."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

import fairlane
from fairlane import errors

SOURCE = Path(fairlane.__file__).parent
LINES_MAX = 400
INSIDE = {"catalogue", "store", "journal", "journal_drain", "operation_drain", "waiters", "route"}
"""Parts of a broker that are its own business."""
OF_HTTP = {
    "bad_request",
    "body_too_large",
    "cross_site",
    "header_too_large",
    "host_not_allowed",
    "method_not_allowed",
    "no_such_route",
    "not_implemented",
    "not_live",
    "too_many_connections",
    "too_many_requests",
    "too_slow",
    "unsupported_media_type",
    "url_too_long",
}
"""Codes of answers that no verb gives: the request never became one."""
FORWARDS_MIN = 3


def modules(*folders: str) -> Iterator[tuple[str, ast.Module]]:
    for folder in folders or (".",):
        for file in sorted((SOURCE / folder).rglob("*.py")):
            yield str(file.relative_to(SOURCE)), ast.parse(file.read_text(encoding="utf-8"))


def test_no_file_is_long() -> None:
    lengths = {name: len((SOURCE / name).read_text(encoding="utf-8").splitlines()) for name, _ in modules()}
    assert {name: length for name, length in lengths.items() if length > LINES_MAX} == {}


def test_no_route_reaches_past_the_facade() -> None:
    """HTTP and commands ask a Broker and its parts by their public names, and nothing beneath."""
    past = [
        f"{name}:{node.lineno} {ast.unparse(node)}"
        for name, tree in modules("http", "commands")
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute)
        and ast.unparse(node.value).rpartition(".")[2] in ("broker", "_broker")
        and (node.attr in INSIDE or node.attr.startswith("_"))
    ]
    assert past == []


def test_no_class_only_hands_calls_on() -> None:
    assert [f"{name} {one.name}" for name, tree in modules() for one in ast.walk(tree) if is_forwarder(one)] == []


def is_forwarder(node: ast.AST) -> bool:
    """Whether most methods of a class call the method of the same name of one of its parts, and do nothing else."""
    if not isinstance(node, ast.ClassDef):
        return False
    methods = [
        one
        for one in node.body
        if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef) and not one.name.startswith("__")
    ]
    forwards = [one for one in methods if hands_on(one)]
    return len(forwards) >= FORWARDS_MIN and len(forwards) * 2 > len(methods)


def hands_on(method: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    body = [one for one in method.body if not (isinstance(one, ast.Expr) and isinstance(one.value, ast.Constant))]
    if len(body) != 1 or not isinstance(body[0], ast.Return | ast.Expr) or body[0].value is None:
        return False
    call = body[0].value.value if isinstance(body[0].value, ast.Await) else body[0].value
    return (
        isinstance(call, ast.Call)
        and isinstance(call.func, ast.Attribute)
        and call.func.attr == method.name
        and ast.unparse(call.func.value).startswith("self.")
        and all(isinstance(one, ast.Name | ast.Starred) for one in call.args)
    )


def test_a_class_that_only_hands_calls_on_is_found() -> None:
    text = "class A:\n" + "".join(f" async def {n}(self, x):\n  return await self._b.{n}(x)\n" for n in ("f", "g", "h"))
    assert is_forwarder(ast.parse(text).body[0])


def codes() -> set[str]:
    def walk(kind: type[errors.FairlaneError]) -> Iterator[str]:
        yield kind.code
        for one in kind.__subclasses__():
            if one.__module__ == errors.__name__:
                yield from walk(one)

    return set(walk(errors.FairlaneError))


def test_codes_on_the_wire_are_those_of_the_error_tree() -> None:
    """Or of HTTP itself. A code that a client is told can be looked up in one place."""
    said = {
        (name, literal.value)
        for name, tree in modules()
        for call in ast.walk(tree)
        if isinstance(call, ast.Call)
        for literal in [*(one.value for one in call.keywords if one.arg == "code"), *_second(call)]
        if isinstance(literal, ast.Constant) and isinstance(literal.value, str)
    }
    assert said, "the test looks for codes where there are some"
    assert sorted((name, code) for name, code in said if code not in codes() | OF_HTTP) == []


def _second(call: ast.Call) -> list[ast.expr]:
    """The code of an answer that says what was wrong."""
    named = call.func.id if isinstance(call.func, ast.Name) else ""
    return call.args[1:2] if named == "error_response" else []


def test_the_drawing_of_the_error_tree_is_the_tree() -> None:
    drawn = re.findall(r"[|'`]-+ (\w+)|^ {4}(FairlaneError)$", errors.__doc__ or "", re.M)
    names = {one for pair in drawn for one in pair if one}
    kinds = {name for name, kind in vars(errors).items() if isinstance(kind, type) and issubclass(kind, Exception)}
    assert names == kinds


@pytest.mark.parametrize("file", sorted((SOURCE.parents[1] / "bench").glob("*.py")), ids=lambda file: file.stem)
def test_a_bench_knows_what_it_measures(file: Path) -> None:
    """What benches import is there: they run seldom, and moves must not leave them behind."""
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("fairlane"):
            module = import_module(node.module or "")
            assert [one.name for one in node.names if not hasattr(module, one.name)] == []
