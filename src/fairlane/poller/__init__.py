"""Polling: reading the records of somebody's HTTP API again and again: each that is new, changed or gone is a message,
once.

    await poll(Source(name="shop", url="https://api.example.com/orders", queue="orders"))

Needs the base install only and speaks HTTP: to the API, and to the broker, which keeps how far it was read.
"""

from __future__ import annotations

from fairlane.poller.poller import Poller, Progress, poll
from fairlane.poller.source import Source

__all__ = ["Poller", "Progress", "Source", "poll"]
