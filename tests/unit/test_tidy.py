"""Code layout: short files, routes that only use the facade, no pure forwarding classes, one error tree."""

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
LAYERS = {"broker", "client", "store", "wire"}
"""Packages in which a noun of the API has a class of its name each."""
ONE_WORD = {
    "Buffer": "the blocking client mirrors the asynchronous one",
    "Client": "the blocking client mirrors the asynchronous one",
    "Consumer": "the blocking client mirrors the asynchronous one",
    "Counts": "the counts of a queue, in the model and on the wire",
    "PushHandle": "the blocking client mirrors the asynchronous one",
    "QueuedPush": "the blocking client mirrors the asynchronous one",
    "Tenant": "a tenant, in the model and on the wire",
}
"""Other class names that are defined twice, each with its single meaning."""
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
"""Codes of answers to requests that never reached a verb."""
FORWARDS_MIN = 3


def modules(*folders: str) -> Iterator[tuple[str, ast.Module]]:
    for folder in folders or (".",):
        for file in sorted((SOURCE / folder).rglob("*.py")):
            yield str(file.relative_to(SOURCE)), ast.parse(file.read_text(encoding="utf-8"))


def test_no_file_is_long() -> None:
    lengths = {name: len((SOURCE / name).read_text(encoding="utf-8").splitlines()) for name, _ in modules()}
    assert {name: length for name, length in lengths.items() if length > LINES_MAX} == {}


def test_a_class_name_stands_for_one_thing() -> None:
    defined: dict[str, list[str]] = {}
    for name, tree in modules():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                defined.setdefault(node.name, []).append(name)

    def is_family(places: list[str]) -> bool:
        """Return True if each layer, and each part of the store, has at most one class of the name."""
        parts = [place.split("/") for place in places]
        layers = ["/".join(part[:2]) if part[0] == "store" else part[0] for part in parts]
        return {part[0] for part in parts} <= LAYERS and len(set(layers)) == len(layers)

    twice = {name: places for name, places in defined.items() if len(places) > 1 and not is_family(places)}
    assert twice.keys() == ONE_WORD.keys(), {name: twice.get(name) for name in twice.keys() ^ ONE_WORD.keys()}


def test_no_function_has_a_coy_name() -> None:
    coy = re.compile(r"_*(met|saw|turn|look|tell|there|left|hear)(_|$)")
    found = [
        f"{name}: {node.name}"
        for name, module in modules()
        for node in ast.walk(module)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and coy.match(node.name)
    ]
    assert found == []


def test_no_route_reaches_past_the_facade() -> None:
    """HTTP and commands use the public names of a Broker and its resources only."""
    past = [
        f"{name}:{node.lineno} {ast.unparse(node)}"
        for name, tree in modules("http", "commands", "cli", "poller", "queen")
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute)
        and ast.unparse(node.value).rpartition(".")[2] in ("broker", "_broker")
        and node.attr.startswith("_")
    ]
    assert past == []


def test_no_class_only_hands_calls_on() -> None:
    classes = ((name, one) for name, tree in modules() for one in ast.walk(tree) if isinstance(one, ast.ClassDef))
    assert [f"{name} {one.name}" for name, one in classes if is_forwarder(one)] == []


def is_forwarder(node: ast.AST) -> bool:
    """Return True if most methods of a class only call the method of the same name of one attribute."""
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
    """Other codes belong to HTTP itself. Every code is therefore documented in one place."""
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
    """Return the code of an error response."""
    named = call.func.id if isinstance(call.func, ast.Name) else ""
    return call.args[1:2] if named == "error_response" else []


def test_the_drawing_of_the_error_tree_is_the_tree() -> None:
    drawn = re.findall(r"[|'`]-+ (\w+)|^ {4}(FairlaneError)$", errors.__doc__ or "", re.M)
    names = {one for pair in drawn for one in pair if one}
    kinds = {name for name, kind in vars(errors).items() if isinstance(kind, type) and issubclass(kind, Exception)}
    assert names == kinds


@pytest.mark.parametrize("file", sorted((SOURCE.parents[1] / "bench").rglob("*.py")), ids=lambda file: file.stem)
def test_the_benchmarks_import_names_that_exist(file: Path) -> None:
    """Benchmarks run rarely, so nobody would notice when a rename breaks them."""
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("fairlane"):
            module = import_module(node.module or "")
            assert [one.name for one in node.names if not hasattr(module, one.name)] == []
