"""The runtime: how long-lived things live, and the one loop by which messages are consumed."""
