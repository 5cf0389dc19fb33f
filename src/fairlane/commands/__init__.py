"""Commands that the broker carries out itself: calls over HTTP, and pushes to another queue."""
