"""The HTTP executor: runs commands as HTTP calls, signed as Standard Webhooks."""

from __future__ import annotations

import time

import msgspec

from fairlane.errors import CommandFailed, InvalidRequest
from fairlane.model.idempotency import sendable
from fairlane.model.limits import RESULT_BYTES_MAX
from fairlane.model.message import check_json
from fairlane.otel import tracing
from fairlane.outbound.client import OutboundClient
from fairlane.outbound.reply import Reply
from fairlane.runtime.backoff import seconds_of
from fairlane.runtime.clock import wall_clock
from fairlane.spec import ir
from fairlane.webhooks.schemes import PRESETS
from fairlane.webhooks.signatures import sign

STANDARD = PRESETS["standard_webhooks"]
RETRY_AFTER_SECONDS_MAX = 3600.0
_AGAIN = (408, 425, 429)
"""Client errors that are worth a retry."""
_EXCERPT_CHARS_MAX = 200


class CallResult(msgspec.Struct, omit_defaults=True):
    """The result of a successful call."""

    status: int
    duration_ms: float
    body: msgspec.Raw | None = None
    """The response body, if it is JSON and not too large to store."""


class HttpExecutor:
    """Sends the input of a command as the body of a request.

    `webhook-id` is the same at every attempt, so that the server can recognise repeats.
    """

    def __init__(self, run: ir.HttpRun, key: bytes, client: OutboundClient) -> None:
        self._run = run
        self._key = key
        self._client = client

    async def run(self, command: str, input: bytes, *, idempotency_key: str) -> bytes:
        """Send the request and return its result. Raises CommandFailed unless the status is 2xx.

        Statuses 408, 425, 429, everything that is not 4xx, and a missing response are retryable. Other 4xx are final.
        """
        began = time.perf_counter()
        headers = self._headers(input, idempotency_key)
        answer = await self._client.call(self._run.method, self._run.url, headers=headers, body=input)
        if not 200 <= answer.status < 300:
            raise _failure(answer)
        return _result(answer, time.perf_counter() - began)

    def _headers(self, input: bytes, idempotency_key: str) -> dict[str, str]:
        id = sendable(idempotency_key)
        signed = sign(STANDARD, self._key, input, delivery_id=id, now=wall_clock() / 1e6)
        signature = {name.decode("ascii"): value.decode("ascii") for name, value in signed.items()}
        return {"Content-Type": "application/json", "Idempotency-Key": id, **tracing.current_context(), **signature}


def _failure(answer: Reply) -> CommandFailed:
    excerpt = answer.body[:_EXCERPT_CHARS_MAX].decode(errors="replace").strip() if answer.whole else ""
    text = f"the server answered {answer.status}{': ' if excerpt else ''}{excerpt}"
    if 400 <= answer.status < 500 and answer.status not in _AGAIN:
        return CommandFailed(text)
    asked = seconds_of(answer.headers.get("Retry-After"))
    return CommandFailed(
        text, retryable=True, retry_after=None if asked is None else min(asked, RETRY_AFTER_SECONDS_MAX)
    )


def _result(answer: Reply, seconds: float) -> bytes:
    result = CallResult(answer.status, round(seconds * 1000, 3))
    plain = msgspec.json.encode(result)
    if not answer.whole or not answer.body or len(answer.body) > RESULT_BYTES_MAX:
        return plain
    result.body = msgspec.Raw(answer.body)
    whole = msgspec.json.encode(result)
    try:
        check_json("the answer", answer.body, bytes_max=RESULT_BYTES_MAX)
        check_json("the result", whole, bytes_max=RESULT_BYTES_MAX)
    except InvalidRequest:
        return plain
    return whole
