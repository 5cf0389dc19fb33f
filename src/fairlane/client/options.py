"""Options of a client."""

from __future__ import annotations

from typing import TypedDict

from fairlane.client.operations import QueuedOperation


class ClientOptions(TypedDict, total=False):
    """Options of a client except its servers. `Retries` documents the first five and their defaults."""

    attempts: int
    retry_delay: float
    max_retry_delay: float
    retry_on_429: bool
    honor_retry_after: bool
    queued_operation: QueuedOperation
    """Outcome of a push that became an operation: `return` (the default) gives a handle at once, `wait` waits."""
    timeout: float
    """Seconds for one request, 30 by default. A pop may take its `wait` in addition."""
    batching: bool
    reorder: bool
    """Push to another broker when a broker whose journal has earlier messages of the partition cannot be reached. By
    default the client waits for that broker."""
    token: str | None
    """An API key or token. Defaults to FAIRLANE_KEY, or to the content of the file FAIRLANE_KEY_FILE."""
    insecure: bool
    """Send the key to other machines even without TLS."""
    ca_file: str | None
    """PEM file of the CA that signed the servers' certificates. Defaults to FAIRLANE_CA_FILE, or to the system's
    CAs."""
    cert_file: str | None
    """PEM file with the client's certificate and key. Defaults to FAIRLANE_CERT_FILE."""
