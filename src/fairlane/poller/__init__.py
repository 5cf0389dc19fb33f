"""Polling of HTTP APIs: each record that is new, changed or deleted becomes one message.

    await poll(Source(name="shop", url="https://api.example.com/orders", queue="orders"))

Needs the `worker` extra. It speaks HTTP to the API and to the broker, which stores how far the API was read.
"""

from __future__ import annotations

from fairlane.poller.poller import Poller, Progress, poll
from fairlane.poller.source import Source

__all__ = ["Poller", "Progress", "Source", "poll"]
