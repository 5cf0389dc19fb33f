"""Sample specs for several tests."""

from __future__ import annotations

from fairlane.spec.compile import Compiled, compile_spec
from fairlane.spec.text import tree
from fairlane.spec.text.source import SourceText

INCIDENTS = """\
app IncidentManagement {
  queue WebhookIngress {
    message_type {
      payload: json
      headers: map<string, string>
      source_ip: string
      received_at: time
    }
    ordering: per_key
    key: payload.incident.id
    retention { max_age_seconds: 86400  max_depth: 10000 }
    delivery {
      max_attempts: 5
      initial_backoff_ms: 1000
      max_backoff_ms: 60000
      dead_letter_queue: WebhookDLQ
    }
    map_to: command Incident.CreateIncident {
      title: payload.incident.title
      severity: payload.incident.urgency == "high" ? "critical" : "high"
      source: "pagerduty"
      external_id: payload.incident.id
    }
  }
  queue WebhookDLQ {
    message_type { original_message: json  failed_at: time  error: string  attempts: int }
    retention { max_age_seconds: 604800 }
  }
  command Incident.CreateIncident {
    input { title: string  severity: enum("critical", "high")  source: string  external_id: string }
    // handled by the worker app that registered this name; or  run: http POST "https://..."  or  run: queue Other
  }
  webhook PagerDutyAlert {
    queue: WebhookIngress
    verify: pagerduty { secret_env: "PAGERDUTY_WEBHOOK_SECRET" }  // or verify_hmac { header: ... secret_env: ... }
    idempotency: header "X-Webhook-Id"
  }
}
"""

# The same app in one line of order, with an open command, a signature of no preset, and a hook that runs at once.
OPEN_COMMAND = """\
app IncidentManagement {
  queue WebhookIngress {
    message_type { payload: json  headers: map<string, string>  source_ip: string  received_at: time }
    ordering: fifo
    retention { max_age_seconds: 24h  max_depth: 10000 }
    delivery { max_attempts: 5  initial_backoff_ms: 1s  max_backoff_ms: 1m  dead_letter_queue: WebhookDLQ }
    map_to: command Incident.CreateIncident { title: payload.incident.title  source: "pagerduty" }
  }
  queue WebhookDLQ { retention { max_age_seconds: 7d } }
  webhook PagerDutyAlert {
    queue: WebhookIngress
    verify_hmac { header: "X-PagerDuty-Signature" prefix: "v1=" secret_env: "PAGERDUTY_WEBHOOK_SECRET" }
    idempotency: header "X-Webhook-Id"
  }
  webhook Sync { on_type: "ping" command: Incident.CreateIncident { title: payload.title  source: "sync" } }
}
"""


def compiled(text: str, **files: str) -> Compiled:
    """`text` as main.fairlane, with further files beside it, by the name before their ending."""
    found = {f"{name}.fairlane": content for name, content in files.items()}

    def read(name: str) -> str:
        if name not in found:
            raise FileNotFoundError(2, "No such file or directory")
        return found[name]

    return compile_spec(SourceText("main.fairlane", text), read)


compiled("app Warm {}")  # builds the parser, which would block the loop of the first test that uses it


def shape(node: object) -> object:
    """Return a tree without its positions."""
    if isinstance(node, tree.SyntaxNode):
        skipped = ("start", "end", "depth")
        return [type(node), *(shape(getattr(node, f)) for f in node.__struct_fields__ if f not in skipped)]
    return [shape(each) for each in node] if isinstance(node, tuple) else node
