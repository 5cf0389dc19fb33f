"""Shortened sample requests of webhook senders in `samples.json`, to test a webhook without the sender."""

from __future__ import annotations

from importlib.resources import files
from typing import Any

import msgspec

from fairlane.spec import ir


class Sample(msgspec.Struct, frozen=True):
    body: dict[str, Any]
    headers: dict[str, str]
    """Headers of the request, without the signature headers."""


_SAMPLES = msgspec.json.decode(files("fairlane.webhooks").joinpath("samples.json").read_bytes(), type=dict[str, Sample])
SAMPLES = {preset: sample for preset, sample in _SAMPLES.items() if preset}


def sender_of(webhook: ir.WebhookSpec) -> str:
    """Return the preset whose sample suits a webhook, or an empty string if none does."""
    if webhook.format == "cloudevents":
        return webhook.format
    return webhook.verify.scheme if webhook.verify else ""


def sample_of(preset: str) -> Sample:
    """Return the sample of a known sender, or a generic one."""
    return _SAMPLES[preset if preset in SAMPLES else ""]
