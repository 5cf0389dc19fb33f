"""Specs over HTTP: planned, applied, listed and exported, and typed queues that enforce them."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import msgspec
import pytest

from fairlane.broker import specs
from tests.http.wire import Wire
from tests.spec.samples import compiled


def document(app: str, text: str) -> Any:
    return msgspec.to_builtins(compiled(f"app {app} {{ {text} }}").spec)


async def test_a_spec_is_planned_applied_listed_and_exported(wire: Wire) -> None:
    app, queue = f"App{uuid4().hex}", wire.name()
    quoted = msgspec.json.encode(queue).decode()
    spec = document(app, f"queue {quoted} {{ retention {{ max_depth: 9 }} }}")
    planned = (await wire.post("/api/v1/spec/plan", body={"spec": spec})).ok()
    assert [(one["sign"], one["kind"], one["name"]) for one in planned["changes"]] == [("+", "queue", queue)]
    assert (planned["dangers"], planned["drift"]) == ([], [])
    body = {"spec": spec, "source": "app ...", "appliedBy": "me", "version": planned["version"]}
    applied = (await wire.post("/api/v1/spec/apply", body=body)).ok()
    assert applied["version"] == planned["version"] + 1
    assert (applied["hash"], applied["appliedBy"]) == (planned["hash"], "me")
    again = (await wire.post("/api/v1/spec/apply", body={"spec": spec})).ok()
    assert (again["version"], again["changes"]) == (applied["version"], [])

    head = {key: applied[key] for key in ("version", "app", "hash", "appliedBy", "appliedAt")}
    [listed] = [one for one in (await wire.get("/api/v1/spec")).ok()["specs"] if one["app"] == app]
    assert listed == {**head, "source": "app ...", "spec": spec}
    assert (await wire.get("/api/v1/spec/versions", app=app)).ok() == {"versions": [head]}
    assert (await wire.get("/api/v1/spec/versions", str(applied["version"]))).ok() == listed
    (await wire.get("/api/v1/spec/versions", str(10**9))).refused(404)
    (await wire.get("/api/v1/spec/versions", "first")).refused(400)

    await wire.configure(queue, maxSize=5)
    exported = (await wire.get("/api/v1/spec/export", app=app)).ok()["spec"]
    assert exported["queues"][queue]["options"]["max_size"] == 5
    assert (await wire.post("/api/v1/spec/plan", body={"spec": exported})).ok()["drift"] != []
    (await wire.get("/api/v1/spec/export", app="nobody")).refused(404)
    (await wire.post("/api/v1/spec/apply", body={"spec": document(app, "")})).refused(409, "consent_needed")
    gone = {"spec": document(app, ""), "consent": True}
    (await wire.post("/api/v1/spec/apply", body=gone | {"version": planned["version"]})).refused(409, "conflict")
    (await wire.post("/api/v1/spec/apply", body=gone)).ok()
    (await wire.get("/api/v1/resources/queues", queue)).refused(404)


async def test_what_weakens_is_told_and_needs_consent(wire: Wire, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOOK_SECRET_A", "whsec_" + "x" * 40)
    app, queue = f"App{uuid4().hex}", f"Q{uuid4().hex}"
    hook, text = f"W{uuid4().hex}", f"queue {queue} {{ delivery {{ dedup_seconds: 1d }} }}"
    signed = document(
        app, f'{text} webhook {hook} {{ queue: {queue} verify: github {{ secret_env: "HOOK_SECRET_A" }} }}'
    )
    (await wire.post("/api/v1/spec/apply", body={"spec": signed})).ok()
    unsigned = {"spec": document(app, f"{text} webhook {hook} {{ queue: {queue} }}")}
    [danger] = (await wire.post("/api/v1/spec/plan", body=unsigned)).ok()["dangers"]
    assert danger.startswith(f"webhook {hook}: signatures are no longer checked")
    refused = (await wire.post("/api/v1/spec/apply", body=unsigned)).refused(409, "consent_needed")
    assert danger in refused["error"]
    assert (await wire.ask("POST", f"/hook/{hook}", body={"n": 1})).status == 401
    (await wire.post("/api/v1/spec/apply", body=unsigned | {"consent": True})).ok()
    assert (await wire.ask("POST", f"/hook/{hook}", body={"n": 1})).status == 202


async def test_a_new_webhook_without_a_signature_needs_consent(wire: Wire) -> None:
    queue, hook = f"Q{uuid4().hex}", f"W{uuid4().hex}"
    body = {"spec": document(f"App{uuid4().hex}", f"queue {queue} {{}} webhook {hook} {{ queue: {queue} }}")}
    [danger] = (await wire.post("/api/v1/spec/plan", body=body)).ok()["dangers"]
    assert danger == f"webhook {hook}: signatures are not checked: anyone who knows the URL can send"
    refused = (await wire.post("/api/v1/spec/apply", body=body)).refused(409, "consent_needed")
    assert danger in refused["error"]
    assert (await wire.ask("POST", f"/hook/{hook}", body={"n": 1})).status == 404
    (await wire.post("/api/v1/spec/apply", body=body | {"consent": True})).ok()


async def test_a_spec_that_is_wrong_is_refused_with_where(wire: Wire, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(specs, "SPEC_BYTES_MAX", 10_000)
    app = f"App{uuid4().hex}"
    wrong: dict[str, Any] = {
        "no document": {"app": app, "queues": 1},
        "unknown member": {"app": app, "tables": {}},
        "another language": {"app": app, "version": 2},
        "unknown queue": document(app, "webhook W { queue: Nowhere }"),
        "bad expression": {"app": app, "queues": {"Q": {"options": {}, "key": "a +"}}},
        "bad option": {"app": app, "queues": {"Q": {"options": {"lease_seconds": 0}}}},
        "nul": {"app": "a\0b"},
        "huge": {"app": app, "queues": {f"Q{n}": {"options": {}, "key": "x" * 100} for n in range(100)}},
        "no secret": document(app, 'queue Q {} webhook W { queue: Q verify: github { secret_env: "NOT_THERE" } }'),
    }
    for what, spec in wrong.items():
        for verb in ("plan", "apply"):
            if (what, verb) != ("no secret", "plan"):
                assert (await wire.post("/api/v1/spec", verb, body={"spec": spec})).status == 400, (what, verb)
    told = await wire.post("/api/v1/spec/apply", body={"spec": wrong["unknown queue"]})
    assert "webhooks.W.queue: there is no queue `Nowhere`" in told.refused(400)["error"]
    assert (await wire.get("/api/v1/spec/versions", app=app)).ok() == {"versions": []}


async def test_a_message_that_does_not_fit_is_refused_with_its_path_and_nothing_is_stored(wire: Wire) -> None:
    app, queue = f"App{uuid4().hex}", f"typed-{uuid4().hex}"
    text = f'queue "{queue}" {{ message_type {{ incident: {{ id: int urgency: string }} }} key: incident.id }}'
    (await wire.post("/api/v1/spec/apply", body={"spec": document(app, text)})).ok()
    good = {"incident": {"id": 7, "urgency": "high"}}
    for bad, path in [
        ({"incident": {"id": 7, "urgency": 3}}, "incident.urgency"),
        ({"incident": {"id": 7}}, "incident.urgency"),
        ([], ""),
        (None, ""),
    ]:
        refused = (await wire.post("/api/v1/push", body={"items": [{"queue": queue, "payload": bad}]})).refused(422)
        assert refused["path"] == path
    items = [{"queue": queue, "payload": good}] * 3 + [{"queue": queue, "payload": {"incident": {"id": "x"}}}]
    told = (await wire.post("/api/v1/push", body={"items": items})).refused(422, "payload_invalid")
    assert told["error"] == "items[3]: incident.id: expected int, got string"
    steps = [{"type": "push", "items": [{"queue": queue, "payload": {}}]}]
    (await wire.post("/api/v1/transaction", body={"operations": steps})).refused(422)
    late = {"queue": queue, "payload": {}, "delayMs": 5}
    (await wire.post("/api/v1/push", body={"items": [late]})).refused(422)
    assert await wire.pop(queue) == []

    await wire.push(queue, good)
    await wire.push(queue, good, partition="mine")
    (await wire.post("/api/v1/transaction", body={"operations": [
        {"type": "push", "items": [{"queue": queue, "payload": {"incident": {"id": 8, "urgency": ""}}}]}
    ]})).ok()  # fmt: skip
    found = await wire.pop(queue, partitions=5)
    assert sorted(message["partition"] for message in found) == ["7", "8", "mine"]


async def test_a_key_that_a_message_does_not_have_refuses_it(wire: Wire) -> None:
    app, queue = f"App{uuid4().hex}", f"keyed-{uuid4().hex}"
    (await wire.post("/api/v1/spec/apply", body={"spec": document(app, f'queue "{queue}" {{ key: a.b }}')})).ok()
    for bad in ({}, {"a": {"b": ""}}, {"a": {"b": 1.5}}, {"a": {"b": "x" * 300}}, [1], "text"):
        answer = await wire.post("/api/v1/push", body={"items": [{"queue": queue, "payload": bad}]})
        assert answer.status in (400, 422), bad
    assert await wire.pop(queue) == []


async def test_schedules_of_a_spec_tick_and_go_with_it(wire: Wire) -> None:
    app, queue, tick = f"App{uuid4().hex}", f"q-{uuid4().hex}", f"tick-{uuid4().hex}"
    text = f'queue "{queue}" {{}} schedule "{tick}" {{ queue: "{queue}" cron: "0 9 * * MON" data: {{"a": 1}} }}'
    wrong = document(app, text.replace("0 9 * * MON", "never"))
    assert "cron is 'never'" in (await wire.post("/api/v1/spec/plan", body={"spec": wrong})).refused(400)["error"]
    (await wire.post("/api/v1/spec/apply", body={"spec": document(app, text)})).ok()
    shown = (await wire.get("/api/v1/schedules", tick)).ok()
    assert (shown["queue"], shown["cron"], shown["data"]) == (queue, "0 9 * * MON", {"a": 1})
    (await wire.post("/api/v1/schedules", tick, "pause")).ok()
    planned = (await wire.post("/api/v1/spec/plan", body={"spec": document(app, text)})).ok()
    assert (planned["changes"], planned["drift"]) == ([], []), "a pause is no change of what was declared"
    (await wire.post("/api/v1/schedules", tick, body={"queue": queue, "everySeconds": 5})).ok()
    planned = (await wire.post("/api/v1/spec/plan", body={"spec": document(app, text)})).ok()
    assert [(one["sign"], one["kind"], one["name"]) for one in planned["drift"]] == [("~", "schedule", tick)]
    (await wire.post("/api/v1/spec/apply", body={"spec": document(app, text)})).ok()
    assert (await wire.get("/api/v1/schedules", tick)).ok()["cron"] == "0 9 * * MON"
    (await wire.post("/api/v1/spec/apply", body={"spec": document(app, ""), "consent": True})).ok()
    (await wire.get("/api/v1/schedules", tick)).refused(404)
