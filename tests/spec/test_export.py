"""A document written as text compiles to the same document."""

from __future__ import annotations

import pytest

from fairlane.spec.check import problems
from fairlane.spec.export import export_text
from fairlane.spec.text.format import format_spec
from fairlane.spec.text.source import SourceText
from tests.spec.samples import INCIDENTS, OPEN_COMMAND, compiled

EVERYTHING = """\
app Everything {
  queue "orders.eu-1" {
    message_type { id: uuid  tags: list<string>?
      more: { a: map<string, float>  b: enum("x", "\\"y\\"")? }  raw: bytes }
    key: string(id) + "-x"
    ordering: per_key
    priority: -3
    encrypted: true
    retention { max_age_seconds: 2h  completed_max_age_seconds: 1h  dead_letter_max_age_seconds: 1d  max_depth: 9 }
    delivery {
      max_attempts: 2  initial_backoff_ms: 5  max_backoff_ms: 50  jitter: true  dead_letter_queue: Dead
      on_exhausted: block  lease_seconds: 7  dedup_seconds: 0  delay_seconds: 1  window_seconds: 2  ttl_seconds: 90
      max_wait_seconds: 60  on_expiry: drop
    }
    map_to: command Pay.Now { id: id  big: size(tags) > 3 ? "yes" : "no" }
  }
  queue Dead {}
  command Call.Out { input { a: int } run: http PUT "https://example.com/x"  secret_env: "S" }
  command Next { run: queue Dead }
  webhook One {
    queue: Dead
    verify_hmac { header: "X-S" prefix: "p=" algorithm: sha512 encoding: base64 secret_env: ["A", "B"] }
    idempotency: payload.id
    format: cloudevents
    headers: ["X-A", "X-B"]
    max_body_bytes: 5
    max_per_second: 7
    redelivery: ignore
  }
  schedule Nightly { queue: Dead  cron: "0 2 * * *"  timezone: "Europe/Rome"  missed: all }
  schedule Often { queue: Dead  every_seconds: 5m  data: {"a": [1, 2.5, null, true, "\\n"]}  partition: "p"  type: "t" }
  poller Shop {
    url: "https://api.example.com/orders"  queue: Dead  paging: token  items: "data"  id: "no"  next: "meta.next"
    cursor_param: "c"  size_param: ""  page_size: 5  total: "n"  ignore: ["seen", "etag"]  type: "order"  partition: "p"
    token_env: "SHOP"  every_seconds: 1m  sweep_seconds: 0  may_be_empty: true  lease_seconds: 9
  }
  webhook Two { queue: Dead  verify: stripe { secret_env: "C" }  idempotency: body  headers: "X-C" }
}
"""


@pytest.mark.parametrize("text", [INCIDENTS, OPEN_COMMAND, EVERYTHING, "app Nothing {}"])
def test_what_is_exported_compiles_to_the_same_document(text: str) -> None:
    read = compiled(text)
    assert problems(read) == []
    exported = export_text(read.spec)
    assert compiled(exported).spec == read.spec
    assert format_spec(SourceText("export", exported)) == exported
