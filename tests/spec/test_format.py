"""Every spec has one canonical form, and formatting loses nothing."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairlane.errors import SpecError
from fairlane.spec.text.format import format_spec, print_expression
from fairlane.spec.text.parser import parse, parse_expression
from fairlane.spec.text.source import SourceText
from tests.spec.samples import INCIDENTS, OPEN_COMMAND, shape

ODD = """# head
import "x"   // why

app X{ // the app


 queue A { a:1 b : 2 // two
   // own
   c: (1+2)*3 -(4-5) ? // in
      x : y
   retention { max_depth: 1 # one
   }

   // last
 } // end
 queue "A b" { message_type { p: { a: int? b: list<{x: int y: {}? }> }? q: map<string,json> } }
 empty {} e2 { // only
 } }
// eof"""

NEAT = """# head
import "x"  // why

app X {  // the app
  queue A {
    a: 1
    b: 2  // two
    // own
    // in
    c: (1 + 2) * 3 - (4 - 5) ? x : y
    retention {
      max_depth: 1  # one
    }

    // last
  }  // end
  queue "A b" {
    message_type { p: { a: int?  b: list<{ x: int  y: {}? }> }?  q: map<string, json> }
  }
  empty {}
  // only
  e2 {}
}
// eof
"""


def formatted(text: str) -> str:
    return format_spec(SourceText("spec", text))


def comments(text: str) -> list[str]:
    found = re.findall(r'"(?:[^"\\\n]|\\.)*"|((?://|#)[^\n]*)', text)
    return sorted(comment.rstrip() for comment in found if comment)


def test_an_untidy_spec_becomes_tidy_and_keeps_its_comments() -> None:
    assert formatted(ODD) == NEAT


@pytest.mark.parametrize("text", [INCIDENTS, formatted(ODD), formatted(OPEN_COMMAND)])
def test_what_is_tidy_stays_as_it_is(text: str) -> None:
    assert formatted(text) == text


LINES = st.sampled_from(
    [
        *(line for line in (ODD + OPEN_COMMAND).splitlines() if line.count("{") == line.count("}")),
        "a: 1",
        "b: x ? y : (z ? -1 : !w)  // why",
        "// alone",
        "",
        "c { d: [1, 2] } # c",
        'message_type { a: enum("x", "y")? }',
        'run: http POST "https://x"',
        "e: command F.G { h: 1 } i: 2",
        "j {",
        "}",
        "k: l { // in",
        "m: {",
        "}",
    ]
)


@settings(deadline=None)
@given(st.lists(LINES, max_size=12), st.integers(0, 3))
def test_formatting_is_stable_and_keeps_meaning_and_comments(lines: list[str], closing: int) -> None:
    text = "app X {\n" + "\n".join(lines) + "\n" + "}\n" * (closing + 1)
    try:
        before = parse(SourceText("spec", text))
    except SpecError:
        return
    once = formatted(text)
    assert formatted(once) == once
    assert shape(parse(SourceText("spec", once))) == shape(before)
    assert comments(once) == comments(text)


EXPRESSIONS = st.recursive(
    st.sampled_from(["a", "a.b", "1", '"x"', "true", "2.5", "24h"]),
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from(["||", "&&", "==", "<", "in", "+", "-", "*", "%"]), inner).map(
            lambda parts: f"({parts[0]}) {parts[1]} ({parts[2]})"
        ),
        st.tuples(inner, inner, inner).map(lambda parts: f"({parts[0]}) ? ({parts[1]}) : ({parts[2]})"),
        inner.map(lambda of: f"!({of})"),
        inner.map(lambda of: f"-({of})"),
        inner.map(lambda of: f"({of}).b"),
        st.tuples(inner, inner).map(lambda parts: f"({parts[0]})[{parts[1]}]"),
        st.lists(inner, max_size=3).map(lambda items: f"f({', '.join(items)})"),
        st.lists(inner, max_size=3).map(lambda items: f"[{', '.join(items)}]"),
        st.lists(inner, max_size=2).map(lambda items: "{" + ", ".join(f"{one}: {one}" for one in items) + "}"),
    ),
    max_leaves=12,
)


@settings(deadline=None)
@given(EXPRESSIONS)
def test_brackets_that_are_left_out_change_nothing(text: str) -> None:
    before = parse_expression(SourceText("spec", text))
    assert shape(parse_expression(SourceText("spec", print_expression(before)))) == shape(before)
