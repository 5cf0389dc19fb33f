"""A sample of a webhook has every field that the spec reads."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from fairlane.spec import ir
from fairlane.spec.check import problems
from fairlane.spec.compiled_queue import CompiledQueue
from fairlane.spec.sample_webhook import sample_body
from fairlane.webhooks.samples import SAMPLES, sample_of
from tests.spec.samples import INCIDENTS, compiled

PICKY = """
app Picky {
  queue Q {
    key: payload.id
    map_to: command Do {
      a: payload.kind == "a" ? payload.from["first name"] : payload.to.name
      b: payload.event.startsWith("order.") ? 1 : 2
      c: payload.count + 3
      d: has(payload.flag) ? payload.flag : false
      e: payload.when
      f: payload.tags.exists(tag, tag.name == payload.wanted)
    }
  }
  command Do { input { a: string  b: int  c: int  d: bool  e: time  f: bool } }
  webhook W { queue: Q  on_type: "ping"  idempotency: payload.nonce }
}
"""


def spec_of(text: str) -> ir.Spec:
    found = compiled(text)
    assert not problems(found)
    return found.spec


def message(body: dict[str, Any]) -> dict[str, Any]:
    return {"payload": body, "headers": {}, "source_ip": "::1", "received_at": "2026-01-31T12:00:00Z"}


@pytest.mark.parametrize("preset", [*SAMPLES, "hmac"])
def test_a_sample_of_any_sender_becomes_the_command(preset: str) -> None:
    spec = spec_of(INCIDENTS)
    sent = sample_of(preset).body
    before = msgspec.json.encode(sent)
    body = sample_body(spec, spec.webhooks["PagerDutyAlert"], sent)
    queue = CompiledQueue(spec, "WebhookIngress")
    queue.check(msgspec.json.encode(message(body)))
    assert queue.partition(message(body))
    command = queue.command(message(body))
    assert command is not None
    assert command.input["severity"] == "critical"
    assert msgspec.json.encode(sent) == before


def test_comparisons_methods_and_inputs_say_what_a_value_should_be() -> None:
    spec = spec_of(PICKY)
    body = sample_body(spec, spec.webhooks["W"], sample_of("shopify").body | {"from": "in the way"})
    assert (body["type"], body["kind"], body["event"], body["count"]) == ("ping", "a", "order.", 3)
    assert (body["when"], body["nonce"]) == ("2026-01-31T12:00:00Z", "sample nonce")
    body["from"] = {"first name": "Ann"}
    assert CompiledQueue(spec, "Q").command(message(body)) is not None


def test_types_say_what_a_value_should_be() -> None:
    spec = spec_of("""
        app Typed {
          queue Q {
            message_type {
              payload: {
                order: { id: int  tags: list<string>  note: string? }  kind: enum("b", "a")  at: time  paid: bool
                id: uuid  raw: bytes  price: float  more: map<string, int>
              }
            }
          }
          webhook W { queue: Q }
        }
    """)
    body = sample_body(spec, spec.webhooks["W"], {"order": "in the way", "kind": "c", "id": 7})
    assert body["order"] == {"id": 1, "tags": ["sample tags"]}
    CompiledQueue(spec, "Q").check(msgspec.json.encode(message(body)))
