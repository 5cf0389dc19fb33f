"""How long-lived things live. Knows nothing of queues."""
