"""The meaning of a spec, and the places of its mistakes."""

from __future__ import annotations

import json
import re
from pathlib import Path

import msgspec
import pytest

from fairlane.errors import SpecError
from fairlane.model.queue import QueueOptions
from fairlane.spec import ir
from fairlane.spec.check import problems
from fairlane.spec.declarations.queue import IMPLIED, sections
from tests.spec.samples import INCIDENTS, OPEN_COMMAND, compiled


def test_the_incidents_app_is_compiled_as_written() -> None:
    spec, _, noted = compiled(INCIDENTS)
    assert noted == []
    assert (spec.app, spec.version) == ("IncidentManagement", 1)
    ingress = spec.queues["WebhookIngress"]
    assert ingress.key == "payload.incident.id"
    assert ingress.options == QueueOptions(
        retry_limit=4,
        retry_delay_ms=1000,
        retry_delay_max_ms=60_000,
        max_size=10_000,
        retention_enabled=True,
        retention_seconds=86_400,
        dead_letter_queue="WebhookDLQ",
    )
    assert ingress.map_to is not None
    assert ingress.map_to.command == "Incident.CreateIncident"
    assert ingress.map_to.fields["severity"] == 'payload.incident.urgency == "high" ? "critical" : "high"'
    command = spec.commands["Incident.CreateIncident"]
    assert command.input is not None
    assert command.input.fields["severity"] == ir.EnumType(choices=("critical", "high"))
    assert spec.webhooks["PagerDutyAlert"] == ir.WebhookSpec(
        queue="WebhookIngress",
        verify=ir.Verify(scheme="pagerduty", secret_env=("PAGERDUTY_WEBHOOK_SECRET",)),
        idempotency=ir.HeaderKey(header="X-Webhook-Id"),
    )


def test_the_app_with_an_open_command_and_a_hook_without_a_queue_is_compiled_as_written() -> None:
    spec, _, noted = compiled(OPEN_COMMAND)
    assert noted == []
    options = spec.queues["WebhookIngress"].options
    assert (options.ordering, options.retention_seconds, options.retry_delay_max_ms) == ("fifo", 86_400, 60_000)
    assert spec.commands == {}
    assert spec.webhooks["PagerDutyAlert"].verify == ir.Verify(
        scheme="hmac", header="X-PagerDuty-Signature", prefix="v1=", secret_env=("PAGERDUTY_WEBHOOK_SECRET",)
    )
    assert spec.webhooks["Sync"] == ir.WebhookSpec(
        on_type="ping",
        command=ir.Mapping(command="Incident.CreateIncident", fields={"title": "payload.title", "source": '"sync"'}),
    )


def test_the_spec_that_the_documentation_shows_is_well() -> None:
    page = (Path(__file__).parents[2] / "docs/spec-language.md").read_text(encoding="utf-8")
    whole = max(re.findall(r"```fairlane\n(.*?)```", page, re.DOTALL), key=len)
    assert problems(compiled(whole)) == []


def test_every_option_of_a_queue_can_be_said() -> None:
    said = {option for section in sections().values() for option in section.values()}
    assert said | set(IMPLIED) == set(QueueOptions.__struct_fields__)
    assert not said & set(IMPLIED)


def test_a_declared_queue_has_five_deliveries_with_growing_pauses_unless_it_says_otherwise() -> None:
    options = compiled("app A { queue Q {} }").spec.queues["Q"].options
    assert (options.retry_limit + 1, options.retry_delay_ms, options.retry_delay_max_ms) == (5, 1000, 60_000)


def test_the_document_is_json_that_comes_back_the_same_and_refuses_what_it_does_not_know() -> None:
    spec = compiled(INCIDENTS).spec
    document = msgspec.json.encode(spec)
    assert msgspec.json.decode(document, type=ir.Spec) == spec
    with pytest.raises(msgspec.ValidationError, match="unknown field `colour`"):
        msgspec.json.decode(json.dumps(json.loads(document) | {"colour": 1}), type=ir.Spec)
    assert ir.schema()["$defs"]["WebhookSpec"]["properties"]["queue"]


def test_layout_and_comments_do_not_change_the_document() -> None:
    untidy = (
        INCIDENTS.replace("\n", " // x\n")
        .replace(" == ", "==")
        .replace("payload.incident.id", "(payload . incident.id)")
    )
    assert compiled(untidy).spec == compiled(INCIDENTS).spec


def test_an_app_may_be_spread_over_files_that_import_each_other() -> None:
    main = 'import "queues.fairlane" import "hooks.fairlane" app A { queue Q {} }'
    hooks = 'import "queues.fairlane" app A { webhook W { queue: Q } }'
    spec, _, noted = compiled(main, queues="app A { queue R {} }", hooks=hooks)
    assert noted == []
    assert (set(spec.queues), set(spec.webhooks)) == ({"Q", "R"}, {"W"})


def test_a_problem_in_an_imported_file_is_told_with_its_name() -> None:
    [problem] = compiled('import "b.fairlane"', b="app A {\n  queu Q {} }").problems
    assert (problem.file, problem.line, problem.column) == ("b.fairlane", 2, 3)


@pytest.mark.parametrize(
    ("text", "column", "message"),
    [
        ('import "a.fairlane"', 8, "the imports form a cycle: a.fairlane -> b.fairlane -> a.fairlane"),
        ('import "missing.fairlane"', 8, '"missing.fairlane" cannot be read: No such file'),
        ('import "/etc/passwd"', 8, "an import must be a relative path"),
    ],
)
def test_an_import_that_leads_nowhere_is_an_error_at_its_place(text: str, column: int, message: str) -> None:
    with pytest.raises(SpecError) as caught:
        compiled(text, a='import "b.fairlane"', b='import "a.fairlane"')
    assert caught.value.column == column
    assert str(caught.value).startswith(message)


# (declarations inside of an app, which starts in line 1; line, column, message, hint)
WRONG = [
    ("qeueu Q {}", 2, 1, "an app has no `qeueu`", "did you mean `queue`?"),
    ("queue {}", 2, 1, "a queue is declared as `queue Name { ... }`", None),
    ("queue: Q", 2, 1, "a queue is declared as `queue Name { ... }`", None),
    ("queue Q {}\nqueue Q {}", 3, 7, "the queue `Q` is declared twice", "first in main.fairlane, line 2"),
    ("queue Q {\n  max_depth: 1\n}", 3, 3, "a queue has no `max_depth`", "expected one of"),
    ("queue Q { ordering: lifo }", 2, 21, "`ordering` must be one of", "did you mean `fifo`?"),
    ("queue Q { ordering: fifo ordering: fifo }", 2, 26, "`ordering` is given twice", "first in line 2"),
    ("queue Q { retention: 1 }", 2, 11, "`retention` is written `retention { ... }`", None),
    ("queue Q { retention X {} }", 2, 11, "`retention` is written `retention { ... }`", None),
    ("queue Q { key { } }", 2, 11, "`key` is written `key: ...`", None),
    ("queue Q { message_type: json }", 2, 11, "`message_type` is written `message_type { field: type }`", None),
    ("queue Q { key: queue Other }", 2, 16, "`key` must be an expression", None),
    ("queue Q { encrypted: 1 }", 2, 22, "`encrypted` must be `true` or `false`", None),
    ("queue Q { priority: high }", 2, 21, "`priority` must be a whole number", None),
    (
        "queue Q { delivery { max_atempts: 5 } }",
        2,
        22,
        "`delivery` has no `max_atempts`",
        "did you mean `max_attempts`?",
    ),
    ("queue Q { delivery { max_attempts: 0 } }", 2, 36, "`max_attempts` counts all deliveries", None),
    (
        "queue Q { delivery { lease_seconds: 1500ms } }",
        2,
        37,
        "`lease_seconds` must be a whole number of seconds",
        None,
    ),
    (
        "queue Q { delivery { lease_seconds: long } }",
        2,
        37,
        "`lease_seconds` must be a whole number or a duration",
        None,
    ),
    ("queue Q { delivery { dead_letter_queue: 5 } }", 2, 41, "`dead_letter_queue` must be a name", None),
    ("queue Q { map_to: Foo }", 2, 19, "`map_to` names a command and what it gets", None),
    ("queue Q { map_to: Foo { a: 1 } }", 2, 19, "`map_to` names a command and what it gets", None),
    ("queue Q { map_to: command Foo { a: 1 a: 2 } }", 2, 38, "`a` is given twice", None),
    ("queue Q { map_to: command Foo { a { } } }", 2, 33, "a field of a command is written `a: expression`", None),
    ("queue Q { message_type { a: strng } }", 2, 29, "there is no type `strng`", "did you mean `string`?"),
    ("queue Q { message_type { a: int a: int } }", 2, 33, "the field `a` is given twice", None),
    ("queue Q { message_type { a: list } }", 2, 29, "`list` needs more: `list<string>`", None),
    ("queue Q { message_type { a: list<int, int> } }", 2, 29, "`list` is written `list<T>`", None),
    ("queue Q { message_type { a: lst<int> } }", 2, 29, "`lst` takes no types in `<>`", "did you mean `list`?"),
    ("queue Q { message_type { a: map<int, int> } }", 2, 33, "the keys of a map are strings", None),
    ('queue Q { message_type { a: enum("x", "x") } }', 2, 39, 'the choice "x" is given twice', None),
    ('queue Q { message_type { a: enm("x") } }', 2, 29, "`enm` takes no choices", "did you mean `enum`?"),
    ("command C { run: 5 }", 2, 18, "`run` is `http POST", "registered"),
    ("webhook W { verify: githb { } }", 2, 21, "there is no preset `githb`", "did you mean `github`?"),
    ("webhook W { verify: github }", 2, 21, "a preset is written `verify: github", None),
    ("webhook W { verify: github { } }", 2, 28, "`github` needs `secret_env`", None),
    ('webhook W { verify_hmac { secret_env: "S" } }', 2, 25, "`verify_hmac` needs `header`", None),
    ("webhook W { verify: github { secret_env: S } }", 2, 42, "`secret_env` must be a string in quotes", None),
    ('webhook W { verify: github { secret: "S" } }', 2, 30, "`github` has no `secret`", "did you mean `secret_env`?"),
    (
        'webhook W { verify: github { secret_env: "S" }\n verify_hmac { header: "X" secret_env: "S" } }',
        3,
        2,
        "use either `verify` or `verify_hmac`",
        None,
    ),
    ("webhook W { queue: 5 }", 2, 20, "`queue` must be a name", None),
    ("webhook W { on_type: ping }", 2, 22, "`on_type` must be a string in quotes", None),
]


@pytest.mark.parametrize(("text", "line", "column", "message", "hint"), WRONG, ids=[case[0] for case in WRONG])
def test_what_is_wrong_is_said_at_its_place(text: str, line: int, column: int, message: str, hint: str | None) -> None:
    [problem] = compiled("app A {\n" + text + "\n}").problems
    assert (problem.line, problem.column) == (line, column)
    assert str(problem).startswith(message)
    assert (problem.hint is None) if hint is None else (problem.hint is not None and hint in problem.hint)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "there is no `app Name { ... }` here"),
        ("queue Q {}", "a file has only imports and `app Name { ... }`"),
        ("app {}", "a file has only imports and `app Name { ... }`"),
        ("app A {} app B {}", "a spec describes one app: `B` here, `A` before"),
    ],
)
def test_a_spec_is_one_app(text: str, message: str) -> None:
    [problem] = compiled(text).problems
    assert str(problem).startswith(message)


def test_one_run_finds_everything() -> None:
    text = "app A { queue Q { ordering: x priority: y } queue R { key { } } webhok W { } }"
    assert len(compiled(text).problems) == 4
