"""The runtime: how long-lived things live. Knows nothing of queues."""
