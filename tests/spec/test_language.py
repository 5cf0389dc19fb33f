"""Every text is parsed to a tree or to an error with a place."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairlane.errors import SpecError
from fairlane.spec.text import tree
from fairlane.spec.text.parser import SOURCE_CHARS_MAX, parse, parse_expression
from fairlane.spec.text.source import SourceText
from tests.spec.samples import INCIDENTS, OPEN_COMMAND, shape

PIECES = re.findall(
    r'"[^"]*"|//.*\n|#.*\n|\w+|[=&|]+|\S',
    INCIDENTS + OPEN_COMMAND + "in import http POST true null 24h 1h30m 2.5 || && ! + - * / % [ ]",
)


def refusal(text: str, read: Callable[[SourceText], object] = parse) -> SpecError | None:
    try:
        read(SourceText("spec", text))
    except SpecError as error:
        return error
    return None


def is_in(error: SpecError, text: str) -> bool:
    lines = text.split("\n")
    return 1 <= error.line <= len(lines) and 1 <= error.column <= len(lines[error.line - 1]) + 1


@pytest.mark.parametrize("text", [INCIDENTS, OPEN_COMMAND, "", "// nothing but a comment"])
def test_what_people_write_is_read(text: str) -> None:
    parse(SourceText("spec", text))


@settings(deadline=None)
@given(st.one_of(st.text(), st.lists(st.sampled_from(PIECES)).map(" ".join)))
def test_no_text_breaks_the_parser_and_each_error_has_a_place(text: str) -> None:
    for read in (parse, parse_expression):
        error = refusal(text, read)
        assert error is None or (is_in(error, text) and str(error))


@settings(deadline=None)
@given(st.data())
def test_a_spec_with_a_hole_or_a_slip_in_it_is_an_error_at_a_place_or_another_spec(data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(INCIDENTS)))
    cut = data.draw(st.integers(0, 12))
    slip = data.draw(st.sampled_from(["", "{", "}", '"', ":", "é", "\0", "0", "@", ",", "'"]))
    text = INCIDENTS[:at] + slip + INCIDENTS[at + cut :]
    error = refusal(text)
    assert error is None or is_in(error, text)


@pytest.mark.parametrize(
    ("text", "line", "column", "message", "hint"),
    [
        ("app X {\n  queue = 1\n}", 2, 9, "unexpected `=`", "`name: value`"),
        ("app X {\n  a: 1, b: 2 }", 2, 7, "unexpected `,`", "white space"),
        (
            "app X {\n  queue Y {\n",
            2,
            12,
            "unexpected end of the text; expected `}` or a name",
            "`{` of line 2 is",
        ),
        (
            'app X {\n queue Y {\n } # {\n queue "{" {} // {',
            4,
            19,
            "unexpected end of the text",
            "`{` of line 1 is",
        ),
        ("app X { webhook gh.push-1x {} }", 1, 24, "unexpected `-`", 'must be quoted: "gh.push-1x"'),
        ("app X {\n queue my-own-queue {} }", 2, 10, "unexpected `-`", 'must be quoted: "my-own-queue"'),
        ('app X {\n  a: "open\n}', 2, 6, "the string is not closed on its line", None),
        ('app X { a: "\\q" }', 1, 13, "the string has an invalid escape", "expected one of"),
        ('app X { a: "\\ud800" }', 1, 12, "the string has a lone surrogate", None),
        ("app X { a: 'b' }", 1, 12, "unexpected `'`", "double quotes"),
        ("app X { a: b & c }", 1, 14, "unexpected `&`", "`&&`"),
        ("app X { a: 12x }", 1, 12, "unexpected `1`", None),
        ("app X { a: 99999999999999999999 }", 1, 12, "the number is too large", None),
        ("app X { a: 1e999 }", 1, 12, "the number is too large", None),
        ("app X { a: 99999999999999999h }", 1, 12, "the duration is too long", None),
        ("\n\tapp @", 2, 6, "unexpected `@`", None),
    ],
)
def test_an_error_says_where_and_what(text: str, line: int, column: int, message: str, hint: str | None) -> None:
    with pytest.raises(SpecError) as caught:
        parse(SourceText("x.fairlane", text))
    error = caught.value
    assert (error.line, error.column) == (line, column)
    assert str(error).startswith(message)
    assert (error.hint is None) if hint is None else (error.hint is not None and hint in error.hint)


def test_an_error_shows_the_line_with_a_mark_beneath_the_place() -> None:
    with pytest.raises(SpecError) as caught:
        parse(SourceText("x.fairlane", "app X {\n\ta: 1, b: 2 }"))
    assert caught.value.render().splitlines() == [
        "x.fairlane:2:6: unexpected `,`; expected `{` or `}` or a name",
        "  2 | \ta: 1, b: 2 }",
        "    | \t    ^",
        "  entries are separated by white space alone",
    ]


def test_of_a_very_long_line_the_part_around_the_place_is_shown() -> None:
    with pytest.raises(SpecError) as caught:
        parse(SourceText("x", f"app X {{ {'a: 1 ' * 1000} @ }}"))
    shown, marked = caught.value.excerpt.splitlines()
    assert len(shown) < 200
    assert shown[marked.index("^")] == "@"


@pytest.mark.parametrize(
    "text", ["(" * 5000, "!" * 5000 + "a", "a" + "+a" * 5000, "a.b" * 5000, "[" * 5000, "a?b:" * 5000]
)
def test_what_is_nested_too_deeply_is_refused_and_not_a_crash(text: str) -> None:
    with pytest.raises(SpecError):
        parse_expression(SourceText("spec", text))


def test_a_text_that_is_too_long_is_refused_unread() -> None:
    with pytest.raises(SpecError, match="at most"):
        parse(SourceText("spec", " " * (SOURCE_CHARS_MAX + 1)))


def test_words_of_the_language_are_names_like_any_other_where_they_mean_nothing() -> None:
    text = """app X { queue Q {
      message_type { queue: string? input: int command: bool in: time header: { import: json } }
      map_to: command Q.R { queue: queue  input: input.header  in: a in b ? in : command  header: header  http: http }
    } }"""
    [app] = parse(SourceText("spec", text)).items
    assert isinstance(app, tree.Section)
    [queue] = app.body.entries
    assert isinstance(queue, tree.Section)
    types, mapping = queue.body.entries
    assert isinstance(types, tree.Types)
    assert [field.name.text for field in types.body.fields] == ["queue", "input", "command", "in", "header"]
    assert isinstance(mapping, tree.Assignment)
    assert isinstance(mapping.value, tree.BlockValue)
    assert len(mapping.value.body.entries) == 5


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("a || b && c == d + e * -f.g", "a || (b && (c == (d + (e * (-(f.g))))))"),
        ("a - b - c", "(a - b) - c"),
        ("a ? b : c ? d : e", "a ? b : (c ? d : e)"),
        ("!a.b(c)[0]", "!((a.b(c))[0])"),
    ],
)
def test_operators_bind_as_in_cel(text: str, same: str) -> None:
    assert shape(parse_expression(SourceText("a", text))) == shape(parse_expression(SourceText("b", same)))
