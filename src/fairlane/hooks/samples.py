"""Samples of webhooks in `samples.json`, as senders send them, shortened: to try a webhook without them."""

from __future__ import annotations

from importlib.resources import files
from typing import Any

import msgspec

from fairlane.spec import ir


class Sample(msgspec.Struct, frozen=True):
    body: dict[str, Any]
    headers: dict[str, str]
    """Besides those of the signature."""


_SAMPLES = msgspec.json.decode(files("fairlane.hooks").joinpath("samples.json").read_bytes(), type=dict[str, Sample])
SAMPLES = {preset: sample for preset, sample in _SAMPLES.items() if preset}


def sender_of(webhook: ir.WebhookSpec) -> str:
    """Return the preset whose sample suits a webhook; empty if none does."""
    if webhook.format == "cloudevents":
        return webhook.format
    return webhook.verify.scheme if webhook.verify else ""


def sample_of(preset: str) -> Sample:
    """Of a sender that is known, or else one that could be anybody's."""
    return _SAMPLES[preset if preset in SAMPLES else ""]
