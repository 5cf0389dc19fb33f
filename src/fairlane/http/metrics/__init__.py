"""Metrics of the broker: `families` writes them, `process` has those of one process, `store` those that all brokers
share, `exposition` is the answer to a scrape."""
