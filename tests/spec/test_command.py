"""`fairlane spec check`, `fmt`, `compile` and `schema`, which need no broker."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from fairlane.cli.main import main
from tests.spec.samples import INCIDENTS

Run = Callable[..., tuple[object, str, str]]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """`fairlane spec ...` in a directory of the test's own: what it exits with and prints."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str, stdin: str = "") -> tuple[object, str, str]:
        monkeypatch.setattr("sys.argv", ["fairlane", "spec", *arguments])
        monkeypatch.setattr("sys.stdin", io.StringIO(stdin))
        with pytest.raises(SystemExit) as exited:
            main()
        return exited.value.code, *capsys.readouterr()

    return run


def test_check_says_that_all_is_well_or_everything_that_is_not(run: Run, tmp_path: Path) -> None:
    (tmp_path / "good.fairlane").write_text(INCIDENTS)
    (tmp_path / "bad.fairlane").write_text(
        INCIDENTS.replace("max_attempts", "max_atempts").replace("per_key", "perkey")
    )
    (tmp_path / "broken.fairlane").write_text("app {")
    (tmp_path / "latin.fairlane").write_bytes(b"app \xe4")
    assert run("check", "good.fairlane") == (
        0,
        "",
        "IncidentManagement is valid: 2 queues, 1 command, 1 webhook.\n",
    )
    code, out, err = run("check", "bad.fairlane")
    assert (code, out) == (2, "")
    assert err.splitlines()[4:] == [
        "bad.fairlane:13:7: `delivery` has no `max_atempts`",
        "  13 |       max_atempts: 5",
        "     |       ^^^^^^^^^^^",
        "  did you mean `max_attempts`?",
        "2 problems.",
    ]
    for file in ("broken.fairlane", "latin.fairlane", "missing.fairlane"):
        code, _, err = run("check", file)
        assert (code, file in err, "Traceback" in err) == (2, True, False)


def test_fmt_rewrites_a_file_or_a_stream_and_check_changes_nothing(run: Run, tmp_path: Path) -> None:
    spec = tmp_path / "a.fairlane"
    spec.write_text("app A{queue Q{}}")
    assert run("fmt", "--check", "a.fairlane") == (1, "", "a.fairlane would change.\n")
    assert spec.read_text() == "app A{queue Q{}}"
    assert run("fmt", "a.fairlane") == (0, "", "Formatted a.fairlane.\n")
    assert spec.read_text() == "app A { queue Q {} }\n"
    assert run("fmt", "--check", "a.fairlane") == (0, "", "")
    assert run("fmt", "-", stdin="app A{}") == (0, "app A {}\n", "")
    assert [path.name for path in tmp_path.iterdir()] == ["a.fairlane"]


def test_compile_prints_the_document_and_schema_what_it_may_be(run: Run, tmp_path: Path) -> None:
    (tmp_path / "a.fairlane").write_text(INCIDENTS)
    code, out, _ = run("compile", "a.fairlane")
    assert (code, json.loads(out)["app"]) == (0, "IncidentManagement")
    code, out, _ = run("schema")
    assert (code, json.loads(out)["title"]) == (0, "Fairlane spec")


def test_try_shows_what_a_message_becomes_or_why_it_does_not_fit(run: Run, tmp_path: Path) -> None:
    (tmp_path / "a.fairlane").write_text(INCIDENTS)
    incident = {"id": "P1", "title": "db is down", "urgency": "high"}
    message = {"payload": {"incident": incident}, "headers": {}, "source_ip": "", "received_at": "2026-01-31T12:00:00Z"}
    code, out, _ = run("try", "a.fairlane", "WebhookIngress", json.dumps(message))
    assert (code, json.loads(out)) == (
        0,
        {
            "queue": "WebhookIngress",
            "partition": "P1",
            "command": {
                "name": "Incident.CreateIncident",
                "input": {"title": "db is down", "severity": "critical", "source": "pagerduty", "external_id": "P1"},
            },
        },
    )
    code, out, err = run("try", "a.fairlane", "WebhookIngress", "-", stdin=json.dumps(message | {"source_ip": 1}))
    assert (code, out, err) == (2, "", "fairlane: source_ip: expected string, got int\n")
    code, _, err = run("try", "a.fairlane", "WebhookIngres", "{}")
    assert (code, "did you mean `WebhookIngress`?" in err) == (2, True)


def test_plan_shows_what_changes_of_a_spec_or_of_its_document(run: Run, tmp_path: Path) -> None:
    (tmp_path / "old.fairlane").write_text(INCIDENTS)
    (tmp_path / "new.fairlane").write_text(INCIDENTS.replace("604800", "3600"))
    _, document, _ = run("compile", "old.fairlane")
    (tmp_path / "old.json").write_text(document)
    for against in ("old.fairlane", "old.json"):
        assert run("plan", "new.fairlane", "--against", against) == (
            0,
            "~ queue WebhookDLQ\n"
            "    ~ retention.max_age_seconds: 604800 -> 3600  ! older messages are deleted, read or not\n"
            "0 to add, 1 to change, 0 to remove; changes marked with ! may lose, refuse or expose messages.\n",
            "",
        )
        assert run("plan", "old.fairlane", "--against", against) == (0, "", "No changes.\n")
    code, out, _ = run("plan", "new.fairlane", "--against", "old.json", "--json")
    assert (code, json.loads(out)[0]["name"]) == (0, "WebhookDLQ")
    (tmp_path / "bad.json").write_text(document.replace("payload.incident.id", "pyload.incident.id"))
    code, _, err = run("plan", "new.fairlane", "--against", "bad.json")
    assert (code, "queues.WebhookIngress.key: the message has no `pyload`" in err) == (2, True)
    (tmp_path / "bad.json").write_text("{")
    code, _, err = run("plan", "new.fairlane", "--against", "bad.json")
    assert (code, "is not a compiled spec" in err) == (2, True)
