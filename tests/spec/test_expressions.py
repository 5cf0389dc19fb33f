"""Expressions evaluate like CEL."""

from __future__ import annotations

import time
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairlane.errors import ExpressionFailed, ExpressionTooCostly
from fairlane.spec import ir
from fairlane.spec.check import check
from fairlane.spec.expression.evaluate import compile_expression, compile_mapping, infer
from fairlane.spec.text.parser import parse_expression
from fairlane.spec.text.source import SourceText
from tests.spec.samples import INCIDENTS, compiled
from tests.spec.test_format import EXPRESSIONS

MESSAGE: dict[str, Any] = {
    "payload": {"incident": {"id": "P1", "title": "db is down", "urgency": "high", "tags": ["a", "b"]}},
    "n": 7,
    "f": 2.5,
    "ok": True,
    "none": None,
    "text": "Grüße",
    "big": 2**62,
}


def evaluated(text: str, message: dict[str, Any] = MESSAGE) -> Any:
    return compile_expression(text)(message)


VALUES: list[tuple[str, Any]] = [
    ("payload.incident.id", "P1"),
    ('payload["incident"].tags[1]', "b"),
    ('payload.incident.urgency == "high" ? "critical" : "high"', "critical"),
    ("n + 1 * 2 - 3", 6),
    ("-7 / 2", -3),
    ("-7 % 2", -1),
    ("7 / -2", -3),
    ("f * 2.0", 5.0),
    ("n / f", 2.8),
    ('"a" + "b"', "ab"),
    ("[1] + [2, n]", [1, 2, 7]),
    ('{"a": n, "b": {"c": none}}', {"a": 7, "b": {"c": None}}),
    ("1 == 1.0", True),
    ("1 == true", False),
    ("ok == 1", False),
    ("[1, [true]] == [1.0, [true]]", True),
    ("[1] == [true]", False),
    ('{"a": 1} == {"a": true}', False),
    ("none == null", True),
    ('n != "7"', True),
    ('"a" < "b" && 1 < 1.5 && 2 >= 2', True),
    ('"a" in payload.incident.tags', True),
    ('"id" in payload.incident', True),
    ("true in [1]", False),
    ("!ok", False),
    ("has(payload.incident)", True),
    ("has(payload.missing)", False),
    ("size(payload.incident.tags) + text.size()", 7),
    ("string(n) + string(f) + string(ok)", "72.5true"),
    ('int("-12") + int(2.9)', -10),
    ('double("1.5") + double(1)', 2.5),
    ('text.startsWith("Gr") && text.endsWith("e") && text.contains("ü")', True),
    ('text.upperAscii() + "ABC".lowerAscii() + " x ".trim()', "GRüßEabcx"),
    ('payload.incident.tags.exists(tag, tag == "b")', True),
    ('payload.incident.tags.all(tag, tag < "b")', False),
    ('payload.incident.tags.filter(n, n != "a") + [n]', ["b", 7]),
    ('payload.incident.tags.map(one, [one, text].exists(two, two == one) ? one + "!" : "")', ["a!", "b!"]),
    ('payload.exists(key, key == "incident")', True),
    ("[].all(x, false) && ![].exists(x, true)", True),
    ("[1, 0].exists(x, 2 / x == 2) && ![0, 2].all(x, 1 / x == 1)", True),
    # In CEL the deciding side decides, even if the other one fails.
    ("missing.x || ok", True),
    ("ok || missing.x", True),
    ("missing.x && !ok", False),
    ("!ok && missing.x", False),
]


@pytest.mark.parametrize(("text", "value"), VALUES)
def test_an_expression_has_the_value_that_cel_gives_it(text: str, value: Any) -> None:
    found = evaluated(text)
    assert (found, type(found)) == (value, type(value))


REFUSED = [
    ("payload.incident.missing", "there is no `missing`"),
    ("missing", "there is no `missing`"),
    ("n.x", "int has no `x`"),
    ("none.x", "null has no `x`"),
    ("payload.incident.tags[2]", "there is no item 2 in a list of 2"),
    ("payload.incident.tags[-1]", "there is no item -1 in a list of 2"),
    ('payload["x"]', "there is no `x`"),
    ("n[0]", "int has no `0`"),
    ('n + "a"', "`+` does not work on int and string"),
    ("ok + ok", "`+` does not work on bool and bool"),
    ('"a" * 3', "`*` does not work on string and int"),
    ("ok < 2", "`<` needs two numbers or two strings, not bool and int"),
    ("n / 0", "division by zero"),
    ("n % 0", "division by zero"),
    ("f % 2", "`%` needs whole numbers"),
    ("big * 2", "the number is too large"),
    ("double(big) * 1e308", "the number is too large"),
    ("-n ? 1 : 2", "expected true or false, not int"),
    ("n && ok", "expected true or false, not int"),
    ("-ok", "`-` needs a number, not bool"),
    ("1 in n", "`in` needs a list or a map, not int"),
    ("{n: 1}", "the keys of a map are strings, not int"),
    ("size(n)", "size needs a string, a list or a map, not int"),
    ('int(" 7 ")', "this string is not a whole number"),
    ('int("1_000")', "this string is not a whole number"),
    ('int("٣")', "this string is not a whole number"),
    ('int("99999999999999999999")', "the number is too large"),
    ('double("x")', "this string is not a number"),
    ("n.trim()", "trim needs strings, not int"),
    ("has(n.x)", "int has no `x`"),
    ("n.exists(x, true)", "exists needs a list or a map, not int"),
    ("[1].filter(x, x)", "expected true or false, not int"),
    ("[1, 0].exists(x, 2 / x == 3)", "division by zero"),
    ("[1].map(x, y)", "there is no `y`"),
    ("missing.x || !ok", "there is no `missing`"),
]


@pytest.mark.parametrize(("text", "reason"), REFUSED)
def test_where_a_message_does_not_fit_the_expression_says_why(text: str, reason: str) -> None:
    with pytest.raises(ExpressionFailed) as caught:
        evaluated(text)
    assert str(caught.value).startswith(f"`{text}`: {reason}")


def test_a_message_becomes_the_input_of_its_command() -> None:
    mapping = compiled(INCIDENTS).spec.queues["WebhookIngress"].map_to
    assert mapping is not None
    assert compile_mapping(mapping)(MESSAGE) == {
        "title": "db is down",
        "severity": "critical",
        "source": "pagerduty",
        "external_id": "P1",
    }
    with pytest.raises(ExpressionFailed, match=r"title: `payload.incident.title`: there is no `incident`"):
        compile_mapping(mapping)({"payload": {}})


JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-(2**70), 2**70), st.floats(allow_nan=False), st.text(max_size=3)),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.sampled_from("abx"), inner, max_size=3)),
    max_leaves=6,
)


@settings(deadline=None)
@given(EXPRESSIONS, st.dictionaries(st.sampled_from("abx"), JSON))
def test_whatever_a_message_holds_an_expression_has_a_value_or_says_why_not(text: str, message: dict[str, Any]) -> None:
    _, faults = infer(parse_expression(SourceText("expression", text)), None)
    if faults:
        return
    try:
        compile_expression(text)(message)
    except ExpressionFailed as error:
        failed = str(error)
        assert failed.startswith("`")


def test_a_mapping_takes_no_more_than_a_fiftieth_of_a_millisecond() -> None:
    mapped = compile_mapping(
        ir.Mapping(
            command="C",
            fields={
                "title": "payload.incident.title",
                "severity": 'payload.incident.urgency == "high" ? "critical" : "high"',
                "source": '"pagerduty"',
                "external_id": "payload.incident.id",
            },
        )
    )
    began = time.process_time()
    for _ in range(10_000):
        mapped(MESSAGE)
    assert (time.process_time() - began) / 10_000 < 1 / 50_000


LARGE = "x" * (3 * 1024 * 1024)


@pytest.mark.parametrize(
    "text",
    [
        " + ".join(["p"] * 90),
        " + ".join(["items"] * 90),
        " || ".join(['p.contains("y")'] * 90),
        " || ".join(["p == q"] * 90),
        " || ".join(["-1 in items"] * 90),
        "items.exists(a, items.exists(b, a + b < 0))",
        "items.all(a, " + " && ".join(["a >= 0"] * 90) + ")",
        "items.map(a, items.map(b, items))",
    ],
    ids=["strings", "lists", "look into", "compare", "look for", "nested", "long", "lists of lists"],
)
def test_an_expression_that_takes_too_much_work_fails_for_its_message_before_it_is_done(text: str) -> None:
    message = {"p": LARGE, "q": LARGE[:-1] + "z", "items": list(range(200_000))}
    with pytest.raises(ExpressionTooCostly, match="too much work"):
        compile_expression(text)(message)


@pytest.mark.parametrize(
    "text", ["p + p", "[p, p]", '{"a": p, "b": [p]}', "[" + ", ".join(["wide"] * 90) + "]"], ids=lambda text: text[:20]
)
def test_a_mapping_that_makes_too_much_of_a_message_fails(text: str) -> None:
    message = {"p": LARGE, "wide": {str(number): number for number in range(10_000)}}
    with pytest.raises(ExpressionTooCostly, match="x: "):
        compile_mapping(ir.Mapping(command="C", fields={"x": text}))(message)
    fields = {"x": "p", "y": "p"}
    with pytest.raises(ExpressionTooCostly, match="more than"):
        compile_mapping(ir.Mapping(command="C", fields=fields))(message)


def test_the_work_of_one_message_is_not_charged_to_the_next() -> None:
    expression = compile_expression('p.contains("y") || p.contains("z")')
    assert [expression({"p": LARGE}) for _ in range(5)] == [False] * 5


def test_an_expression_has_a_length() -> None:
    spec = compiled("app A { queue Q { message_type { a: string } key: a } }").spec
    queue = msgspec.structs.replace(spec.queues["Q"], key="a in [" + ", ".join(["a"] * 100_000) + "] ? a : a")
    [finding] = check(msgspec.structs.replace(spec, queues={"Q": queue}))
    assert "at most 10000" in finding.message
