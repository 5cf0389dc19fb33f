"""Commands that the broker runs itself: HTTP calls and pushes to another queue."""
