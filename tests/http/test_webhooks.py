"""POST /hook/{name}: a signed request becomes one message, and a refused one only a count."""

from __future__ import annotations

import asyncio
import base64
import hashlib
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import msgspec
import pytest

from fairlane.http.routes import webhooks
from fairlane.runtime.clock import wall_clock
from fairlane.webhooks.schemes import PRESETS
from fairlane.webhooks.signatures import sign
from fairlane.webhooks.webhook import REFUSED_MAX
from tests.http.test_specs import document
from tests.http.wire import Answer, Wire
from tests.metrics import sample, samples
from tests.until import SECONDS_MAX

SECRET = "whsec_" + base64.b64encode(b"a secret of more than 24 bytes").decode()
OLD = "an old secret of more than 24 bytes"
BODY = b'{"type":"incident", "incident": {"id": "i-1", "urgency": "high"}}'


@pytest.fixture(autouse=True)
def secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOOK_SECRET", SECRET)
    monkeypatch.setenv("HOOK_SECRET_OLD", OLD)
    monkeypatch.setenv("HOOK_SECRET_SHORT", "short")


def headers_of(
    preset: str, body: bytes, *, secret: str = SECRET, id: str = "id-1", seconds: float = 0
) -> dict[str, str]:
    scheme = PRESETS[preset]
    key = base64.b64decode(secret.removeprefix("whsec_")) if scheme.key == "whsec" else secret.encode()
    signed = sign(scheme, key, body, delivery_id=id, now=wall_clock() / 1e6 + seconds)
    return {"Content-Type": "application/json"} | {name.decode(): value.decode() for name, value in signed.items()}


class Inbox:
    """A queue with the webhooks that fill it, applied as a spec."""

    def __init__(self, wire: Wire) -> None:
        self.wire = wire
        self.tag = uuid4().hex
        self.queue = f"Q{self.tag}"

    async def apply(self, text: str) -> Inbox:
        """Apply a spec in which `%` makes names unique to this test."""
        spec = document(f"App{self.tag}", text.replace("%", self.tag))
        (await self.wire.post("/api/v1/spec/apply", body={"spec": spec, "consent": True})).ok()
        return self

    async def send(self, name: str, body: bytes, headers: dict[str, str]) -> Answer:
        return await self.wire.ask("POST", f"/hook/{name}{self.tag}", body=body, headers=headers)

    def counted(self, name: str) -> dict[str, int]:
        found = self.wire.app.broker.process.telemetry.webhooks
        return {outcome: count for (hook, outcome), count in found.items() if hook == f"{name}{self.tag}"}


QUEUE = """
queue Q% {
  message_type { payload: { type: string  incident: { id: string  urgency: string }? }  headers: map<string, string>
                 source_ip: string  received_at: time }
  key: payload.incident.id
  retention { max_depth: 3 }
}
"""


async def test_a_webhook_becomes_one_message_with_the_bytes_that_came(wire: Wire) -> None:
    hook = 'webhook W% { queue: Q%  verify: github { secret_env: "HOOK_SECRET" }  headers: ["X-GitHub-Event"] }'
    inbox = await Inbox(wire).apply(QUEUE + hook)
    headers = headers_of("github", BODY) | {"X-GitHub-Event": "push", "X-Other": "no"}
    answer = (await inbox.send("W", BODY, headers)).ok(202)
    assert (answer["queued"], answer["idempotency_key"]) == (True, hashlib.sha256(BODY).hexdigest())
    again = (await inbox.send("W", BODY, headers)).ok(202)
    assert again == answer, "a redelivery is told the same, and nothing is stored"
    [message] = await wire.pop(inbox.queue)
    assert (message["id"], message["partition"]) == (answer["message_id"], "i-1")
    assert message["transactionId"] == f"W{inbox.tag}:{answer['idempotency_key']}"
    assert message["data"]["payload"] == msgspec.json.decode(BODY)
    assert (message["data"]["headers"], message["data"]["source_ip"]) == ({"X-GitHub-Event": "push"}, "127.0.0.1")
    await wire.ack([message], result={"incident": 7})
    done = (await inbox.send("W", BODY, headers)).ok()
    assert done == {
        "idempotency_key": answer["idempotency_key"],
        "message_id": answer["message_id"],
        "processed": True,
        "result": {"incident": 7},
    }
    assert inbox.counted("W") == {"queued": 1, "duplicate": 1, "processed": 1}
    metrics = samples((await wire.get("/metrics/prometheus")).body)
    assert metrics[sample("hook_requests_total", hook=f"W{inbox.tag}", outcome="queued")] == 1


async def test_every_preset_is_taken_when_signed_and_refused_when_not(wire: Wire) -> None:
    hooks = "".join(
        f'webhook {preset}% {{ queue: Q%  verify: {preset} {{ secret_env: "HOOK_SECRET" }} }}' for preset in PRESETS
    )
    inbox = await Inbox(wire).apply("queue Q% {}" + hooks)
    refusals = set()
    for preset in PRESETS:
        signed = headers_of(preset, BODY)
        (await inbox.send(preset, BODY, signed)).ok(202)
        [name] = [name for name in signed if "ignature" in name.lower() or "hmac" in name.lower()]
        good = signed[name]
        wrong = [
            {key: value for key, value in signed.items() if key != name},
            signed | {name: ""},
            signed | {name: good[:-4]},
            signed | {name: good[:-8] + "AAAAAAA="},
            signed | {name: ",".join([good] * 1000)[:8000]},
            signed | {name: "\u00ff\u0660"},
            headers_of(preset, BODY + b" "),
            headers_of(preset, BODY, secret="whsec_" + base64.b64encode(b"another secret of 24 bytes").decode()),
        ]
        if PRESETS[preset].has_timestamp:
            wrong += [headers_of(preset, BODY, seconds=seconds) for seconds in (-301, 400)]
        for headers in wrong:
            answer = await inbox.send(preset, BODY, headers)
            answer.refused(401, "unauthenticated")
            refusals.add(answer.body)
        assert sum(inbox.counted(preset).values()) == 1 + len(wrong)
    assert len(refusals) == 1, "who is refused is told nothing"
    assert len(await wire.pop(inbox.queue)) == len(PRESETS)


async def test_what_is_signed_and_wrong_is_told_why_and_not_stored(wire: Wire) -> None:
    hook = """
    webhook W% {
      queue: Q%
      verify: pagerduty { secret_env: ["HOOK_SECRET", "HOOK_SECRET_OLD"] }
      max_body_bytes: 500
      idempotency: header "X-Webhook-Id"
    }
    """
    inbox = await Inbox(wire).apply(QUEUE + hook)
    told: dict[bytes, tuple[int, str]] = {
        b"": (400, "unreadable"),
        b"{": (400, "unreadable"),
        b'{"a":"\xff"}': (400, "unreadable"),
        b"\xef\xbb\xbf{}": (400, "unreadable"),
        b"[" * 129 + b"]" * 129: (400, "unreadable"),
        b'{"type":"x" /* why */}': (400, "unreadable"),
        b"%" + b"x" * 500: (413, "too_large"),
        b"[]": (422, "misfit"),
        b'{"type":1}': (422, "misfit"),
        b'{"type":"a"}': (422, "misfit"),
        b'{"type":"a","incident":{"id":"","urgency":""}}': (422, "misfit"),
    }
    for body, (status, outcome) in told.items():
        before = inbox.counted("W").get(outcome, 0)
        (await inbox.send("W", body, headers_of("pagerduty", body))).refused(status)
        assert inbox.counted("W")[outcome] == before + 1, body
    headers = headers_of("pagerduty", BODY)
    (await inbox.send("W", BODY, headers | {"Content-Type": "application/xml"})).refused(415)
    (await inbox.send("W", BODY, headers | {"Content-Type": "multipart/form-data; boundary=x"})).refused(415)
    (await inbox.send("W", BODY, {k: v for k, v in headers.items() if k != "x-webhook-id"})).refused(400)
    (await inbox.send("Nobody", BODY, headers)).refused(404)
    (await wire.ask("GET", f"/hook/W{inbox.tag}")).refused(405)
    assert await wire.pop(inbox.queue) == []
    for number in range(3):
        body = BODY.replace(b"i-1", b"i-%d" % number)
        (await inbox.send("W", body, headers_of("pagerduty", body, secret=OLD, id=f"id-{number}"))).ok(202)
    full = await inbox.send("W", BODY, headers_of("pagerduty", BODY, id="id-4"))
    full.refused(503, "QUEUE_FULL")
    assert int(full.headers["Retry-After"]) >= 1
    (await inbox.send("W", body, headers_of("pagerduty", body, id="id-2"))).ok(202)


async def test_redeliveries_are_told_by_header_expression_body_or_what_the_sender_sends(wire: Wire) -> None:
    hooks = """
    queue Q% {}
    webhook Header% { queue: Q%  idempotency: header "X-Id" }
    webhook Part% { queue: Q%  idempotency: payload.n }
    webhook Body% { queue: Q%  idempotency: body }
    webhook Nothing% { queue: Q% }
    """
    inbox = await Inbox(wire).apply(hooks)
    one, two = b'{"n":1}', b'{"n": 1}'
    keys = {
        "Header": [("a", one), ("a", two), ("b", one)],
        "Part": [("a", one), ("b", two), ("b", b'{"n":2}')],
        "Body": [("a", one), ("b", one), ("a", two)],
        "Nothing": [("a", one), ("b", one), ("a", two)],
    }
    for name, sent in keys.items():
        found = [
            (await inbox.send(name, body, {"X-Id": id, "Content-Type": "application/json"})).ok(202)
            for id, body in sent
        ]
        assert found[0] == found[1] != found[2], name
    assert found[0]["idempotency_key"] == hashlib.sha256(one).hexdigest()
    assert len(await wire.pop(inbox.queue)) == 8, "webhooks do not take each other's keys for their own"
    for bad in (b"{}", b'{"n":[]}'):
        (await inbox.send("Part", bad, {"Content-Type": "application/json"})).refused(422)
    long = await inbox.send("Header", one, {"X-Id": "x" * 500, "Content-Type": "application/json"})
    assert long.ok(202)["idempotency_key"] == hashlib.sha256(b"x" * 500).hexdigest()


async def test_a_webhook_has_a_rate_and_an_address_that_guesses_is_told_to_slow_down(
    wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(webhooks, "time", SimpleNamespace(monotonic=lambda: 1000.5))  # all within one second
    inbox = await Inbox(wire).apply("""
    queue Q% {}
    webhook Slow% { queue: Q%  max_per_second: 2 }
    webhook W% { queue: Q%  verify: github { secret_env: "HOOK_SECRET" } }
    """)
    found = [await inbox.send("Slow", b"%d" % number, {}) for number in range(4)]
    assert [answer.status for answer in found[:2]] == [202, 202]
    assert found[-1].status == 429
    assert found[-1].headers["Retry-After"] == "1"
    statuses = [(await inbox.send("W", BODY, {})).status for _ in range(REFUSED_MAX + 2)]
    assert statuses == [401] * REFUSED_MAX + [429] * 2


class Echo:
    async def run(self, tenant: str, command: str, input: bytes, *, idempotency_key: str) -> bytes:
        return b'{"ran":"%b","input":%b}' % (command.encode(), input)


async def test_a_webhook_without_a_queue_runs_its_command_and_answers_with_the_outcome(wire: Wire) -> None:
    inbox = await Inbox(wire).apply('webhook S% { on_type: "ping"  command: Do.It { title: payload.title } }')
    ping = b'{"type":"ping","title":"t"}'
    (await inbox.send("S", ping, {})).refused(503)
    wire.app.runner = Echo()
    answer = (await inbox.send("S", ping, {})).ok()
    assert (answer["processed"], answer["result"]) == (True, {"ran": "Do.It", "input": {"title": "t"}})
    assert (await inbox.send("S", b'{"type":"pong"}', {})).ok()["ignored"] is True
    (await inbox.send("S", b'{"type":"ping"}', {})).refused(422)
    assert (await inbox.send("S", b'"ping"', {})).ok()["ignored"] is True


async def test_a_secret_that_is_missing_or_short_refuses_the_apply_and_a_broker_without_it_answers_503(
    wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    inbox = Inbox(wire)
    for name in ("HOOK_SECRET_NONE", "HOOK_SECRET_SHORT"):
        text = f'queue Q{inbox.tag} {{}} webhook W {{ queue: Q{inbox.tag}  verify: github {{ secret_env: "{name}" }} }}'
        body = {"spec": document(f"App{inbox.tag}", text)}
        refused = (await wire.post("/api/v1/spec/apply", body=body)).refused(400)
        assert "short" in refused["error"] or "not set" in refused["error"]
    (await wire.get("/api/v1/resources/queues", inbox.queue)).refused(404)
    await inbox.apply('queue Q% {} webhook W% { queue: Q%  verify: github { secret_env: "HOOK_SECRET" } }')
    compiled_specs: Any = wire.app.broker.specs.compiled
    monkeypatch.delenv("HOOK_SECRET")
    compiled_specs._apps.clear()
    await compiled_specs.reload()
    (await inbox.send("W", BODY, headers_of("github", BODY))).refused(503)


async def test_a_recorded_request_is_known_whatever_its_unsigned_delivery_id_says(wire: Wire) -> None:
    inbox = await Inbox(wire).apply(QUEUE + 'webhook W% { queue: Q%  verify: github { secret_env: "HOOK_SECRET" } }')
    signed = headers_of("github", BODY)
    first = (await inbox.send("W", BODY, signed)).ok(202)
    without = {name: value for name, value in signed.items() if name != "x-github-delivery"}
    for headers in (signed, {**signed, "x-github-delivery": "another"}, without):
        again = (await inbox.send("W", BODY, headers)).ok(202)
        assert again["message_id"] == first["message_id"]
    other = BODY.replace(b"high", b"low")
    assert (await inbox.send("W", other, headers_of("github", other))).ok(202)["message_id"] != first["message_id"]


async def test_wrong_signatures_do_not_hold_up_right_ones_from_the_same_address(wire: Wire) -> None:
    hook = 'webhook W% { queue: Q%  verify: github { secret_env: "HOOK_SECRET" }  max_per_second: 2 }'
    inbox = await Inbox(wire).apply(QUEUE + hook)
    wrong = {"Content-Type": "application/json", "x-hub-signature-256": "sha256=" + "0" * 64}
    statuses = [(await inbox.send("W", BODY, wrong)).status for _ in range(REFUSED_MAX + 20)]
    assert set(statuses) <= {401, 429}
    (await inbox.send("W", BODY, headers_of("github", BODY))).ok(202)


FORM = "application/x-www-form-urlencoded"


async def test_slack_is_told_its_challenge_and_nothing_is_stored(wire: Wire) -> None:
    hooks = """
    queue Q% {}
    webhook S% { queue: Q%  verify: slack { secret_env: "HOOK_SECRET" } }
    webhook G% { queue: Q%  verify: github { secret_env: "HOOK_SECRET" } }
    """
    inbox = await Inbox(wire).apply(hooks)
    body = b'{"token": "t", "challenge": "3eZb\\u0022rz", "type": "url_verification"}'
    signed = headers_of("slack", body)
    assert (await inbox.send("S", body, signed)).ok(200) == {"challenge": '3eZb"rz'}
    (await inbox.send("S", body, signed | {"x-slack-signature": "v0=" + "0" * 64})).refused(401)
    assert inbox.counted("S") == {"challenge": 1, "mismatch": 1}
    assert await wire.pop(inbox.queue) == []
    for other in (b'{"type":"url_verification"}', b'{"type":"message","text":"url_verification","challenge":"x"}'):
        assert (await inbox.send("S", other, headers_of("slack", other))).ok(202)["queued"]
    assert (await inbox.send("G", body, headers_of("github", body))).ok(202)["queued"], "it is not of Slack"


@pytest.mark.parametrize(
    ("preset", "body", "payload"),
    [
        (
            "slack",
            b"command=%2Fdeploy&text=shop+to%20b%C3%BChne&user_id=U1&empty=",
            {"command": "/deploy", "text": "shop to b\u00fchne", "user_id": "U1", "empty": ""},
        ),
        ("slack", b"payload=%7B%22type%22%3A%22block_actions%22%7D", {"type": "block_actions"}),
        ("github", b"payload=%7B%22ref%22%3A%22main%22%2C%22n%22%3A1%7D", {"ref": "main", "n": 1}),
        ("github", b"payload=" + b"[" * 5000 + b"]" * 5000, {"payload": "[" * 5000 + "]" * 5000}),
        ("github", b"payload=%7Bnot+json&a=1&a=2", {"payload": "{not json", "a": ["1", "2"]}),
    ],
)
async def test_a_form_is_verified_as_it_came_and_stored_as_json(
    wire: Wire, preset: str, body: bytes, payload: dict[str, Any]
) -> None:
    hook = f'webhook W% {{ queue: Q%  verify: {preset} {{ secret_env: "HOOK_SECRET" }} }}'
    inbox = await Inbox(wire).apply("queue Q% {}" + hook)
    headers = headers_of(preset, body) | {"Content-Type": f"{FORM}; charset=utf-8"}
    answer = (await inbox.send("W", body, headers)).ok(202)
    assert answer["idempotency_key"] == hashlib.sha256(body).hexdigest(), "of the bytes that came"
    assert (await inbox.send("W", body, headers)).ok(202) == answer
    (await inbox.send("W", body + b"&x=1", headers)).refused(401)
    [message] = await wire.pop(inbox.queue)
    assert message["data"]["payload"] == payload


@pytest.mark.parametrize("body", [b"", b"no form", b"a=%FF", b"a=\xc3\xbc", b"&".join([b"a=1"] * 2000)])
async def test_what_is_no_form_though_it_says_so_is_refused(wire: Wire, body: bytes) -> None:
    hook = 'webhook W% { queue: Q%  verify: github { secret_env: "HOOK_SECRET" } }'
    inbox = await Inbox(wire).apply("queue Q% {}" + hook)
    (await inbox.send("W", body, headers_of("github", body) | {"Content-Type": FORM})).refused(400)
    assert inbox.counted("W") == {"unreadable": 1}


async def speak(wire: Wire, text: str, body: bytes = b"") -> bytes:
    """Send this, and read until the broker closes the connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", int(wire.base.rpartition(":")[2]))
    writer.write(text.replace("\n", "\r\n").encode() + body)
    try:
        return await asyncio.wait_for(reader.read(), SECONDS_MAX)
    finally:
        writer.close()


async def test_a_body_that_is_longer_than_its_webhook_allows_is_refused_by_its_header(wire: Wire) -> None:
    hook = 'webhook W% { queue: Q%  verify: github { secret_env: "HOOK_SECRET" }  max_body_bytes: 500 }'
    inbox = await Inbox(wire).apply(QUEUE + hook)
    answer = await speak(wire, f"POST /hook/W{inbox.tag} HTTP/1.1\nhost: localhost\ncontent-length: 501\n\n")
    assert answer.startswith(b"HTTP/1.1 413 ")
    assert b"body_too_large" in answer
    assert inbox.counted("W") == {"too_large": 1}


async def test_a_signature_in_a_trailer_is_none(wire: Wire) -> None:
    hook = 'webhook W% { queue: Q%  verify: github { secret_env: "HOOK_SECRET" } }'
    inbox = await Inbox(wire).apply(QUEUE + hook)
    head = (
        f"POST /hook/W{inbox.tag} HTTP/1.1\nhost: localhost\nconnection: close\n"
        "content-type: application/json\ntransfer-encoding: chunked\n\n"
    )
    signed = "".join(f"{name}: {value}\r\n" for name, value in headers_of("github", BODY).items())
    framed = b"%x\r\n%b\r\n0\r\n%b\r\n" % (len(BODY), BODY, signed.encode())
    assert (await speak(wire, head, framed)).startswith(b"HTTP/1.1 401 ")
    assert await wire.pop(inbox.queue) == []


async def test_webhooks_are_listed_with_what_came_and_why_it_was_refused(wire: Wire) -> None:
    hook = 'webhook W% { queue: Q%  verify: github { secret_env: "HOOK_SECRET" } }'
    inbox = await Inbox(wire).apply(QUEUE + hook)
    (await inbox.send("W", BODY, headers_of("github", BODY))).ok(202)
    (await inbox.send("W", BODY, headers_of("github", b"other"))).refused(401)

    async def listed() -> dict[str, Any]:
        answer = await wire.get("/api/v1/hooks")
        assert SECRET.encode() not in answer.body
        assert b"incident" not in answer.body, "no payload is shown"
        [found] = [one for one in answer.ok()["hooks"] if one["name"] == f"W{inbox.tag}"]
        return dict(found)

    found = await listed()
    assert (found["queue"], found["scheme"], found["available"]) == (inbox.queue, "github", True)
    (await inbox.send("W", b"{", headers_of("github", b"{"))).refused(400)
    refused = (await listed())["recent"][0]
    assert (refused["outcome"], refused["why"][:8]) == ("unreadable", "the body")
    found = await listed()
    assert (found["delivered"], found["refused"], found["refusedLately"]) == (1, 2, 1)
    _, refused, taken = found["recent"]
    assert (refused["outcome"], refused["status"], taken["status"]) == ("mismatch", 401, 202)
    assert "secret" in refused["why"]
    [told] = [one for one in (await wire.get("/api/v1/findings")).ok()["findings"] if inbox.tag in one["sentence"]]
    assert told["kind"] == "hook_refused"


@pytest.mark.parametrize("scheme", ["github", "stripe", "standard_webhooks"])
async def test_a_signed_sample_goes_the_way_of_every_request(wire: Wire, scheme: str) -> None:
    hook = f'queue R% {{}}\nwebhook W% {{ queue: R%  verify: {scheme} {{ secret_env: "HOOK_SECRET" }} }}'
    inbox = await Inbox(wire).apply(hook)
    answer = (await wire.post("/api/v1/hooks", f"W{inbox.tag}", "test")).ok()
    assert answer["status"] == 202, answer
    [message] = await wire.pop(f"R{inbox.tag}")
    assert message["id"] == answer["body"]["message_id"]
    (await wire.post("/api/v1/hooks", "none", "test")).refused(404)
