"""A plan lists every change, and marks those that can lose, refuse or expose messages."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairlane.model.queue import QueueOptions
from fairlane.spec import ir
from fairlane.spec.declarations.queue import DECLARED
from fairlane.spec.plan import plan, render
from fairlane.wire.specs import Change
from tests.spec.samples import INCIDENTS, OPEN_COMMAND, compiled


def spec(text: str) -> ir.Spec:
    return compiled(f"app A {{ {text} }}").spec


def changed(before: str, after: str) -> list[str]:
    """Return the lines of a plan without its summary."""
    return render(plan(spec(before), spec(after))).splitlines()[:-1]


@pytest.mark.parametrize("text", [INCIDENTS, OPEN_COMMAND])
def test_the_same_spec_changes_nothing(text: str) -> None:
    assert plan(compiled(text).spec, compiled(text + "\n// a comment").spec) == []


def test_what_is_new_is_added_whole_and_has_nothing_to_lose() -> None:
    changes = plan(None, compiled(INCIDENTS).spec)
    assert [(change.sign, change.kind, change.name) for change in changes] == [
        ("+", "queue", "WebhookDLQ"),
        ("+", "queue", "WebhookIngress"),
        ("+", "command", "Incident.CreateIncident"),
        ("+", "webhook", "PagerDutyAlert"),
    ]
    assert not any(change.dangers for change in changes)
    assert render(changes).splitlines()[:8] == [
        "+ queue WebhookDLQ",
        '    + message_type.original_message: "json"',
        '    + message_type.failed_at: "time"',
        '    + message_type.error: "string"',
        '    + message_type.attempts: "int"',
        "    + retention.max_age_seconds: 604800",
        "+ queue WebhookIngress",
        '    + message_type.payload: "json"',
    ]
    assert render(changes).splitlines()[-1] == "4 to add, 0 to change, 0 to remove."


@pytest.mark.parametrize(
    ("before", "after", "lines"),
    [
        ("queue Q {}", "", ["- queue Q  ! its messages and dead letters are deleted"]),
        ("webhook W {}", "", ["- webhook W  ! its senders are refused"]),
        ("command C {}", "", ["- command C"]),
        (
            "queue Q { delivery { max_attempts: 5 } }",
            "queue Q { delivery { max_attempts: 7 } }",
            ["~ queue Q", "    + delivery.max_attempts: 7"],
        ),
        (
            "queue Q { delivery { max_attempts: 6 } }",
            "queue Q { delivery { max_attempts: 7 } }",
            ["~ queue Q", "    ~ delivery.max_attempts: 6 -> 7"],
        ),
        (
            "queue Q { retention { max_age_seconds: 1h } }",
            "queue Q { retention { max_age_seconds: 2h } }",
            ["~ queue Q", "    ~ retention.max_age_seconds: 3600 -> 7200"],
        ),
        (
            "queue Q { retention { max_age_seconds: 2h } }",
            "queue Q { retention { max_age_seconds: 1h } }",
            ["~ queue Q", "    ~ retention.max_age_seconds: 7200 -> 3600  ! older messages are deleted, read or not"],
        ),
        (
            "queue Q {}",
            "queue Q { delivery { ttl_seconds: 1h } }",
            ["~ queue Q", "    + delivery.ttl_seconds: 3600  ! older messages expire"],
        ),
        (
            "queue Q { retention { max_age_seconds: 2h } }",
            "queue Q {}",
            ["~ queue Q", "    - retention.max_age_seconds: 7200"],
        ),
        (
            "queue Q {}",
            "queue Q { ordering: unordered }",
            [
                "~ queue Q",
                '    + ordering: "unordered"  ! a queue with partitions stays ordered or unordered: this is refused',
            ],
        ),
        (
            "queue Q { ordering: fifo }",
            "queue Q {}",
            [
                "~ queue Q",
                '    - ordering: "fifo"  ! waiting messages keep their partitions, new ones get others',
            ],
        ),
        (
            "queue Q { key: a }",
            "queue Q { key: b }",
            [
                "~ queue Q",
                '    ~ key: "a" -> "b"  ! new messages of a key go to another partition than waiting ones',
            ],
        ),
        (
            "queue Q { message_type { a: { b: int } c: json d: int? e: int f: int j: json? } }",
            "queue Q { message_type { a: { b: int? } c: string d: int g: int? h: int f: json i: json j: json } }",
            [
                "~ queue Q",
                '    ~ message_type.a.b: "int" -> "int?"',
                '    ~ message_type.c: "json" -> "string"  ! messages that do not fit are refused',
                '    ~ message_type.d: "int?" -> "int"  ! messages that do not fit are refused',
                '    + message_type.g: "int?"',
                '    + message_type.h: "int"  ! messages that do not fit are refused',
                '    ~ message_type.f: "int" -> "json"',
                '    + message_type.i: "json"  ! messages that do not fit are refused',
                '    ~ message_type.j: "json?" -> "json"  ! messages that do not fit are refused',
                '    - message_type.e: "int"',
            ],
        ),
        (
            "queue Q { map_to: command C { a: x } }",
            "queue Q { map_to: command C { a: y  b: z } }",
            ["~ queue Q", '    ~ map_to.a: "x" -> "y"', '    + map_to.b: "z"'],
        ),
        (
            "command C { run: queue Q }",
            "command C { input { a: int } run: queue R }",
            [
                "~ command C",
                '    + input.a: "int"',
                '    ~ run: {"by":"queue","queue":"Q"} -> {"by":"queue","queue":"R"}',
            ],
        ),
        (
            'webhook W { verify: github { secret_env: "SECRET_A" } }',
            "webhook W {}",
            [
                "~ webhook W",
                '    - verify: {"scheme":"github","secret_env":["SECRET_A"]}'
                "  ! signatures are no longer checked: anyone who knows the URL can send",
            ],
        ),
        (
            'webhook W { verify: github { secret_env: "SECRET_A" } }',
            'webhook W { verify: github { secret_env: "SECRET_B" } }',
            [
                "~ webhook W",
                '    ~ verify: {"scheme":"github","secret_env":["SECRET_A"]} -> '
                '{"scheme":"github","secret_env":["SECRET_B"]}  ! signatures are checked differently: '
                "current senders may be refused and others accepted",
            ],
        ),
        (
            "webhook W {}",
            'webhook W { verify: github { secret_env: "SECRET_A" } }',
            ["~ webhook W", '    + verify: {"scheme":"github","secret_env":["SECRET_A"]}'],
        ),
        (
            'command C { run: http POST "https://a.example/x" secret_env: "SECRET_A" }',
            'command C { run: http POST "https://b.example/x" secret_env: "SECRET_B" }',
            [
                "~ command C",
                '    ~ run: {"by":"http","method":"POST","url":"https://a.example/x"} -> '
                '{"by":"http","method":"POST","url":"https://b.example/x"}  ! messages are sent to a different URL',
                '    ~ secret_env: "SECRET_A" -> "SECRET_B"  ! calls are signed with a different secret, or not at all',
            ],
        ),
        (
            'command C { run: http POST "https://a.example/x" secret_env: "SECRET_A" }',
            "command C { run: queue Q } queue Q {}",
            [
                "+ queue Q",
                "~ command C",
                '    ~ run: {"by":"http","method":"POST","url":"https://a.example/x"} -> {"by":"queue","queue":"Q"}',
                '    - secret_env: "SECRET_A"  ! calls are signed with a different secret, or not at all',
            ],
        ),
        (
            'poller P { url: "https://a.example/x" queue: Q token_env: "SECRET_A" } queue Q {}',
            'poller P { url: "https://a.example/y" queue: Q token_env: "SECRET_B" } queue Q {}',
            [
                "~ poller P",
                '    ~ url: "https://a.example/x" -> "https://a.example/y"  ! a different URL gets the token',
                '    ~ token_env: "SECRET_A" -> "SECRET_B"  ! a different secret, or none, is sent to its URL',
            ],
        ),
        (
            'command C { run: http POST "https://a.example/x" secret_env: "SECRET_A" }',
            'command C { run: http POST "https://a.example/x" secret_env: "SECRET_A" } '
            'command D { run: http POST "https://A.example/y" secret_env: "SECRET_A" } '
            'command E { run: http POST "https://evil.example/y" secret_env: "SECRET_A" }',
            [
                "+ command D",
                '    + run: {"by":"http","method":"POST","url":"https://A.example/y"}',
                '    + secret_env: "SECRET_A"',
                "+ command E",
                '    + run: {"by":"http","method":"POST","url":"https://evil.example/y"}'
                "  ! calls go to evil.example, which is new in the spec",
                '    + secret_env: "SECRET_A"',
            ],
        ),
        (
            "queue Q { encrypted: true }",
            "queue Q {}",
            ["~ queue Q", "    - encrypted: true  ! new messages are stored unencrypted"],
        ),
    ],
)
def test_a_change_is_told_by_its_setting_with_what_it_may_cost(before: str, after: str, lines: list[str]) -> None:
    assert changed(before, after) == lines


def test_a_plan_with_dangers_says_so_in_the_end() -> None:
    text = render(plan(spec("queue Q {} webhook W {}"), spec("queue R {}")))
    assert (
        text.splitlines()[-1]
        == "1 to add, 0 to change, 2 to remove; changes marked with ! may lose, refuse or expose messages."
    )


def test_a_plan_is_json_too() -> None:
    changes = plan(spec("queue Q {}"), spec("queue Q { key: a }"))
    assert msgspec.json.decode(msgspec.json.encode(changes), type=list[Change]) == changes


OPTIONS = st.fixed_dictionaries(
    {},
    optional={
        "ordering": st.sampled_from(["per_key", "fifo", "unordered"]),
        "retry_limit": st.integers(0, 3),
        "max_size": st.integers(0, 2),
        "max_running": st.integers(0, 2),
        "rate_per_key": st.sampled_from(["", "1/1m"]),
        "rate": st.sampled_from(["", "1/1m", "2/1m"]),
        "ttl_seconds": st.integers(0, 2),
        "retry_jitter": st.booleans(),
        "encryption_enabled": st.booleans(),
        "dead_letter_queue": st.sampled_from([False, "Q"]),
    },
)


@settings(deadline=None)
@given(OPTIONS, OPTIONS)
def test_a_plan_is_empty_exactly_when_nothing_differs(before: dict[str, object], after: dict[str, object]) -> None:
    def made(options: dict[str, object]) -> ir.Spec:
        merged: QueueOptions = msgspec.structs.replace(DECLARED, **options)
        return ir.Spec(app="A", queues={"Q": ir.QueueSpec(options=merged)})

    one, other = made(before), made(after)
    assert (plan(one, other) == []) is (one == other)
