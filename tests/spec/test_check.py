"""Mistakes that can be found without data are found before a spec is applied, with their places."""

from __future__ import annotations

import time
from typing import Any

import msgspec
import pytest

from fairlane.spec import ir
from fairlane.spec.check import check, problems, warnings
from fairlane.spec.declarations.queue import DECLARED
from tests.spec.samples import INCIDENTS, OPEN_COMMAND, compiled


@pytest.mark.parametrize("text", [INCIDENTS, OPEN_COMMAND])
def test_the_examples_are_well(text: str) -> None:
    assert problems(compiled(text)) == []


TYPED = """message_type { id: uuid  n: int  f: float  ok: bool  at: time?  tags: list<string>  of: { a: string }
  level: enum("low", "high")  any: json  by: map<string, int> }"""


def queue(*entries: str) -> str:
    return f"queue Q {{\n{TYPED}\n{' '.join(entries)} }}"


def mapping(expression: str) -> str:
    return queue(f"map_to: command C {{ x: {expression} }}")


# (declarations inside of an app, from line 2 on; line, column, message, hint)
WRONG = [
    # missing queues, and loops
    (
        "queue Q { delivery { dead_letter_queue: DQL } }\nqueue DLQ {}",
        2,
        22,
        "there is no queue `DQL`",
        "did you mean `DLQ`?",
    ),
    ("queue Q { delivery { dead_letter_queue: Q } }", 2, 22, "dead letters would loop: Q -> Q", None),
    (
        "queue A { delivery { dead_letter_queue: B } }\nqueue B { delivery { dead_letter_queue: A } }",
        2,
        22,
        "dead letters would loop: A -> B -> A",
        None,
    ),
    (
        "queue A { map_to: command C {} }\ncommand C { run: queue B }\nqueue B { map_to: command D {} }\n"
        "command D { run: queue A }",
        2,
        27,
        "messages would loop: A -> B -> A",
        None,
    ),
    (
        "queue Q { delivery { dead_letter_queue: D } }\nqueue D { message_type { reason: string } }",
        2,
        22,
        "dead letters never fit `D`: `reason` is missing",
        "`original_message`",
    ),
    ("webhook W { queue: Nowhere }", 2, 13, "there is no queue `Nowhere`", None),
    ("command C { run: queue Nowhere }", 2, 13, "there is no queue `Nowhere`", None),
    # settings out of range, and settings without an effect
    ("queue Q { delivery { lease_seconds: 0 } }", 2, 22, "lease_seconds is 0; it must be between", None),
    ("queue Q { ordering: unordered delivery { ttl_seconds: 5 } }", 2, 42, "ttl_seconds is for ordered queues", None),
    ("queue Q { delivery { max_backoff_ms: 10 } }", 2, 22, "this is less than the first backoff", None),
    (
        "queue Q { delivery { initial_backoff_ms: 0 jitter: true } }",
        2,
        44,
        "this has no effect: there is no backoff",
        None,
    ),
    *(
        (f"queue Q {{ delivery {{ max_attempts: 1 {setting} }} }}", 2, 38, "this has no effect: with `max_att", None)
        for setting in ("initial_backoff_ms: 10", "max_backoff_ms: 5000", "jitter: true")
    ),
    ("queue Q { retention { max_age_seconds: 1h completed_max_age_seconds: 2h } }", 2, 43, "this has no effect", None),
    ("queue Q { delivery { ttl_seconds: 1h max_wait_seconds: 1h } }", 2, 38, "this has no effect", None),
    ("queue Q { delivery { ttl_seconds: 1h delay_seconds: 2h } }", 2, 38, "this is not less than `ttl_seconds`", None),
    ("queue Q { delivery { on_expiry: drop } }", 2, 22, "this has no effect: nothing expires", None),
    ("queue Q { ordering: fifo key: a }", 2, 31, "a key is for `ordering: per_key`; this queue is fifo", None),
    # expressions
    (queue("key: idd"), 5, 6, "the message has no `idd`", "did you mean `id`?"),
    (queue("key: of.b"), 5, 9, "there is no `b`", "expected one of `a`"),
    (queue("key: id.x"), 5, 9, "uuid has no `x`", None),
    (queue("key: tags"), 5, 6, "a key is a string or a whole number", None),
    (mapping("1h"), 5, 24, "durations are only for settings", None),
    (mapping("n ? 1 : 2"), 5, 24, "this must be bool, not int", None),
    (mapping("!n"), 5, 25, "this must be bool, not int", None),
    (mapping("-id"), 5, 25, "this must be int or float, not uuid", None),
    (mapping("n + id"), 5, 24, "`+` does not work on int and uuid", None),
    (mapping("f % 2"), 5, 24, "this must be int, not float", None),
    (mapping("ok < 1"), 5, 24, "this must be int or float or string, not bool", None),
    (mapping("n < id"), 5, 24, "`<` does not work on int and uuid", None),
    (mapping("n == id"), 5, 24, "int and uuid are never equal", None),
    (mapping('level == "hgh"'), 5, 33, '"hgh" is not one of enum("low", "high")', "did you mean `high`?"),
    (mapping("n in n"), 5, 29, "this must be list or map, not int", None),
    (mapping('tags["a"]'), 5, 29, 'a part of list<string> is named by int, not "a"', None),
    (mapping("n[0]"), 5, 24, "int has no parts", None),
    (mapping('of["b"]'), 5, 27, "there is no `b`", "expected one of `a`"),
    (mapping("{1: 2}"), 5, 25, "this must be string, not int", None),
    (mapping("siz(tags)"), 5, 24, "there is no function `siz`", "did you mean `size`?"),
    (mapping("id.startWith(id)"), 5, 27, "there is no method `startWith`", "did you mean `startsWith`?"),
    (mapping("size(id, id)"), 5, 24, "`size` has 2 arguments; it takes 1", None),
    (mapping("id.contains()"), 5, 27, "`contains` has 0 arguments; it takes 1", None),
    (mapping("n.size()"), 5, 24, "this must be string or list or map, not int", None),
    (mapping("has(n)"), 5, 24, "`has` needs the member of something", None),
    (mapping("n.exists(x, ok)"), 5, 24, "this must be list or map, not int", None),
    (mapping("tags.exists(tag, tag)"), 5, 41, "this must be bool, not string", None),
    (mapping("tags.exists(tag, n == tag)"), 5, 41, "int and string are never equal", None),
    (mapping("tags.map(tag, other)"), 5, 38, "the message has no `other`", "expected one of"),
    (mapping('tags.all("tag", ok)'), 5, 29, "`all` needs a variable", None),
    (mapping("tags.filter(ok)"), 5, 29, "`filter` needs a variable", None),
    (mapping("tags.exist(t, ok)"), 5, 29, "there is no method `exist`", "did you mean `exists`?"),
    (
        mapping("tags.map(x, size(x))") + "\ncommand C { input { x: list<string> } }",
        5,
        24,
        "`x` of `C`: this is int, not string",
        None,
    ),
    # commands and their input
    (mapping("n") + "\ncommand C { input { x: string } }", 5, 24, "`x` of `C`: this is int, not string", None),
    (mapping("f") + "\ncommand C { input { x: int } }", 5, 24, "`x` of `C`: this is float, not int", None),
    (
        mapping('ok ? "a" : "c"') + '\ncommand C { input { x: enum("a", "b") } }',
        5,
        24,
        '`x` of `C`: "c" is not one of enum("a", "b")',
        None,
    ),
    (mapping("tags") + "\ncommand C { input { x: list<int> } }", 5, 24, "`x` of `C`: this is string, not int", None),
    (mapping("of") + "\ncommand C { input { x: { b: int } } }", 5, 24, "`x` of `C`: `b` is missing", None),
    (mapping("of") + "\ncommand C { input { x: map<string, int> } }", 5, 24, "`x` of `C`: this is string, not", None),
    (mapping("n") + "\ncommand C { input { y: int x: int } }", 5, 17, "`C` needs `y`, which is not given", None),
    (mapping("n") + "\ncommand C { input { y: int? } }", 5, 21, "the input of `C` has no `x`", "expected one of `y`"),
    ('command C { run: http GET "https://a.b" secret_env: "S" }', 2, 13, "a command must use PATCH, POST, PUT", None),
    ('command C { run: http POST "ftp://a.b" secret_env: "S" }', 2, 13, "the URL of a command must", None),
    ('command C { run: http POST "https://u:p@a.b" secret_env: "S" }', 2, 13, "the URL of a command must", None),
    ('command C { run: http POST "https://[::1" secret_env: "S" }', 2, 13, "the URL of a command must", None),
    ('command C { run: http POST "https://a.b" }', 2, 13, "an HTTP call must be signed", "secret_env"),
    ('command C { secret_env: "S" }', 2, 13, "this has no effect: only calls over HTTP are signed", None),
    (
        'command C { run: http POST "https://a.b" secret_env: "A B" }',
        2,
        42,
        '"A B" is not the name of an environment',
        None,
    ),
    (
        "command C { input { a: string } run: queue Q }\nqueue Q { message_type { a: int } }",
        2,
        33,
        "the input of the command does not fit the messages of `Q`: `a`: this is string, not int",
        None,
    ),
    # webhooks
    ('webhook "a b" { queue: Q }\nqueue Q {}', 2, 9, "the name of a webhook is part of its URL", None),
    ("webhook W { }", 2, 9, "a webhook needs either a queue or a command that runs at once", "map_to"),
    ("webhook W { queue: Q command: C {} }\nqueue Q {}", 2, 9, "a webhook needs either a queue or a command", "map_to"),
    ("webhook W { queue: Q max_body_bytes: 0 }\nqueue Q {}", 2, 22, "this must be between 1 and", None),
    ("webhook W { queue: Q max_per_second: -1 }\nqueue Q {}", 2, 22, "this must be between 0, for no limit", None),
    (
        "webhook W { queue: Q }\nqueue Q { delivery { dedup_seconds: 1h } }",
        2,
        13,
        "redeliveries of a webhook within a day must be recognised",
        "`dedup_seconds` of `Q`",
    ),
    # schedules
    ("schedule S { every_seconds: 5m }", 2, 1, "a schedule needs `queue`", None),
    ("schedule S { queue: Q every_seconds: 5m }", 2, 14, "there is no queue `Q`", None),
    ("schedule S { queue: Q }\nqueue Q {}", 2, 10, "give exactly one of everySeconds and cron", None),
    ("schedule S { queue: Q every_seconds: 0 }\nqueue Q {}", 2, 10, "everySeconds is 0", None),
    (
        'schedule S { queue: Q every_seconds: 5 timezone: "Europe/Rome" }\nqueue Q {}',
        2,
        40,
        "this has no effect: an interval uses no time zone",
        None,
    ),
    (
        "schedule S { queue: Q every_seconds: 5 data: payload.x }\nqueue Q {}",
        2,
        46,
        "`data` must be a constant: there is no message",
        None,
    ),
    (
        'schedule S { queue: Q every_seconds: 5 data: {"a": 1} }\nqueue Q { message_type { a: string } }',
        2,
        46,
        "what it pushes never fits `Q`: a: expected string, got int",
        None,
    ),
    (
        "schedule S { queue: Q every_seconds: 5 }\nqueue Q { message_type { a: string } }",
        2,
        10,
        "what it pushes never fits `Q`: `a` is missing",
        None,
    ),
    # pollers
    ('schedule S { queue: Q cron: "99 * * * *" }\nqueue Q {}', 2, 23, "cron is '99 * * * *'", None),
    ('schedule S { queue: Q cron: "0 0 30 2 *" }\nqueue Q {}', 2, 23, "cron is '0 0 30 2 *'", None),
    (
        'schedule S { queue: Q cron: "0 0 * * *" timezone: "Mars/Base" }\nqueue Q {}',
        2,
        41,
        "there is no time zone",
        None,
    ),
    ('poller P { url: "https://a.b" }', 2, 1, "a poller needs `queue`", None),
    ('poller P { url: "https://a.b" queue: Q }', 2, 31, "there is no queue `Q`", None),
    ('poller P { url: "ftp://a.b" queue: Q }\nqueue Q {}', 2, 12, "a poller needs a URL like https://", None),
    ('poller P { url: "https://a.b" queue: Q page_size: 0 }\nqueue Q {}', 2, 40, "page_size is 0", None),
    (
        'poller P { url: "https://a.b" queue: Q token_env: "1" }\nqueue Q {}',
        2,
        40,
        '"1" is not the name of an environment',
        None,
    ),
    (
        'poller P { url: "https://a.b" queue: Q }\nqueue Q { message_type { record: json  at: time } }',
        2,
        31,
        "messages of this poller never fit `Q`: `at` is missing",
        "`source`, `event`, `key`",
    ),
    ('webhook W { queue: Q headers: "a b" }\nqueue Q {}', 2, 22, '"a b" is not the name of a header', None),
    ('webhook W { queue: Q idempotency: header "" }\nqueue Q {}', 2, 22, '"" is not the name of a header', None),
    ("webhook W { queue: Q idempotency: pyload.id }\nqueue Q {}", 2, 35, "the message has no `pyload`", "`payload`?"),
    ("webhook W { queue: Q idempotency: headers }\nqueue Q {}", 2, 35, "a key is a string or a whole number", None),
    ("webhook W { command: C { a: body.id } }", 2, 29, "the message has no `body`", "expected one of"),
    (
        'webhook W { queue: Q verify_hmac { header: "X" secret_env: "1" } }\nqueue Q {}',
        2,
        22,
        '"1" is not the name of an environment variable',
        None,
    ),
    (
        'webhook W { queue: Q verify_hmac { header: "X" prefix: "é" secret_env: "S" } }\nqueue Q {}',
        2,
        22,
        "the prefix of a signature is printable ASCII",
        None,
    ),
    (
        "webhook W { queue: Q }\nqueue Q { message_type { body: json } }",
        2,
        13,
        "messages of this webhook never fit `Q`: `body` is missing",
        "`payload`",
    ),
    (
        "webhook W { queue: Q idempotency: payload.idd }\nqueue Q { message_type { payload: { id: string } } }",
        2,
        43,
        "there is no `idd`",
        "did you mean `id`?",
    ),
]


@pytest.mark.parametrize(("text", "line", "column", "message", "hint"), WRONG, ids=[case[0] for case in WRONG])
def test_what_is_wrong_is_found_at_its_place(text: str, line: int, column: int, message: str, hint: str | None) -> None:
    [problem] = problems(compiled("app A {\n" + text + "\n}"))
    assert (str(problem)[: len(message)], problem.line, problem.column) == (message, line, column)
    assert (problem.hint is None) if hint is None else (hint in (problem.hint or ""))


@pytest.mark.parametrize(
    ("url", "well"),
    [
        *[(f"https://{host}/x", False) for host in ("2130706433", "0x7f.1", "0177.0.0.1", "127\u30020\u30020\u30021")],
        *[(url, True) for url in ("http://localhost:8080/x", "https://10.1.2.3/x", "https://[::1]:8443/x")],
    ],
)
def test_a_url_is_in_its_usual_spelling_and_the_broker_judges_where_it_leads(url: str, well: bool) -> None:
    text = f'app A {{ command C {{ run: http POST "{url}" secret_env: "S" }} }}'
    found = problems(compiled(text))
    assert [str(problem) for problem in found if "must look like https" not in str(problem)] == []
    assert bool(found) is not well


RIGHT = [
    mapping("n + f * 2 - n / 2"),
    mapping('id == "x" || any == 3 && any.a.b > 1'),
    mapping("any[0].x[n] + any"),
    mapping('has(of.a) ? of.a : level == "low" ? "l" : string(n)'),
    mapping("size(tags) + size(by) + id.size()"),
    mapping('tags[0] + at + "x" + level'),
    mapping('"a" in by || id in tags || n in [1, 2]'),
    mapping('by["x"] % 2 == 0 && by.y < f'),
    mapping("tags.exists(n, n == id) && by.all(key, by[key] > 0) && any.exists(x, x.y)"),
    mapping("tags.filter(t, size(t) > n).map(t, n)") + "\ncommand C { input { x: list<int> } }",
    mapping('{"a": n, "b": [n, id]}') + "\ncommand C { input { x: { a: float b: list<json>? c: bool? } } }",
    mapping("at") + "\ncommand C { input { x: time } }",
    mapping("of") + "\ncommand C { input { x: map<string, string> } }",
    mapping("any") + '\ncommand C { input { x: enum("a") } }',
    mapping("level") + "\ncommand C { input { x: string } }",
    mapping("null") + "\ncommand C { input { x: string? } }",
    'webhook W { queue: Q idempotency: headers["X-Id"] }\n'
    "queue Q { message_type { payload: { id: int } } key: payload.id }",
    "queue A { map_to: command C {} }\nqueue B { map_to: command C {} }\ncommand C { run: queue D }\nqueue D {}",
    "queue Q { key: anything.at.all }",
]


@pytest.mark.parametrize("text", RIGHT)
def test_what_may_be_right_is_left_to_the_message(text: str) -> None:
    assert [str(problem) for problem in problems(compiled("app A {\n" + text + "\n}"))] == []


def test_a_document_without_a_file_is_checked_the_same() -> None:
    spec = msgspec.json.decode(msgspec.json.encode(compiled(INCIDENTS).spec), type=ir.Spec)
    assert check(spec) == []
    ingress = msgspec.structs.replace(spec.queues["WebhookIngress"], key="payload..", map_to=None)
    broken = msgspec.structs.replace(spec, queues={**spec.queues, "WebhookIngress": ingress})
    [finding] = check(broken)
    assert finding.render().startswith("queues.WebhookIngress.key: `payload..` cannot be read")
    ingress = msgspec.structs.replace(ingress, key="pyload.id")
    [finding] = check(msgspec.structs.replace(spec, queues={**spec.queues, "WebhookIngress": ingress}))
    assert finding.render() == "queues.WebhookIngress.key: the message has no `pyload` (did you mean `payload`?)"


def nested(levels: int) -> ir.RecordType:
    type_: ir.Type = ir.Scalar(of="int")
    for _ in range(levels):
        type_ = ir.ListType(items=type_)
    return ir.RecordType(fields={"a": type_})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"queues": {"Q": ir.QueueSpec(options=DECLARED, message_type=nested(150))}}, "nested more than 100 deep"),
        (
            {"commands": {"C": ir.CommandSpec(input=ir.RecordType(fields={"a": ir.EnumType(choices=())}))}},
            "an enum without choices fits nothing",
        ),
        (
            {"webhooks": {"W": ir.WebhookSpec(queue="WebhookDLQ", verify=ir.Verify(scheme="github", secret_env=()))}},
            "a signature needs a secret",
        ),
        (
            {"webhooks": {"W": ir.WebhookSpec(queue="WebhookDLQ", verify=ir.Verify(scheme="hmac", secret_env=("S",)))}},
            "without a preset also a header",
        ),
    ],
)
def test_a_document_from_elsewhere_is_held_to_what_a_file_cannot_even_say(change: dict[str, Any], message: str) -> None:
    queues = {"WebhookDLQ": ir.QueueSpec(options=DECLARED)}
    [finding] = check(msgspec.structs.replace(ir.Spec(app="A", queues=queues), **change))
    assert message in finding.message


def test_a_large_spec_is_checked_in_a_moment() -> None:
    """Check two hundred queues with everything that belongs to them."""
    part = INCIDENTS[INCIDENTS.index("{") + 1 : INCIDENTS.rindex("}")]
    names = ("WebhookIngress", "WebhookDLQ", "CreateIncident", "PagerDutyAlert")
    parts = []
    for number in range(100):
        text = part
        for name in names:
            text = text.replace(name, f"{name}{number}")
        parts.append(text)
    found = compiled("app A {" + "".join(parts) + "}")
    began = time.process_time()
    assert problems(found) == []
    assert time.process_time() - began < 1


def test_what_is_wrong_in_every_phase_is_told_at_once() -> None:
    """An unknown setting is found by the parser, an invalid cron expression by the checks."""
    found = problems(
        compiled(
            "app A {\n"
            "queue Good {}\n"
            "queue Bad { speed: 9 }\n"
            'schedule S { queue: Good cron: "99 * * * *" }\n'
            "schedule T { queue: Bad every_seconds: 60 }\n"
            'command C { run: http POST "ftp://a.b" secret_env: "S" }\n'
            "}"
        )
    )
    assert [problem.line for problem in found] == [3, 4, 6]


def test_data_of_a_schedule_for_an_encrypted_queue_is_warned_of() -> None:
    text = "app A {{\nqueue Q {{ {} }}\nschedule T {{ queue: Q every_seconds: 60 {} }}\n}}"
    data = 'data: {"kind": "nightly"}'
    assert warnings(compiled(text.format("", data))) == []
    assert warnings(compiled(text.format("encrypted: true", ""))) == []
    [warning] = warnings(compiled(text.format("encrypted: true", data)))
    assert (warning.line, "is stored unencrypted" in str(warning)) == (3, True)


def test_a_webhook_that_asks_for_no_signature_is_warned_of() -> None:
    signed = 'webhook W { queue: Q verify: github { secret_env: "S" } }'
    assert warnings(compiled(f"app A {{ queue Q {{}} {signed} }}")) == []
    [warning] = warnings(compiled("app A {\nqueue Q {}\nwebhook W { queue: Q }\n}"))
    assert (warning.line, "anyone who knows the URL" in str(warning)) == (3, True)
