"""Metrics of the broker.

`families` writes them, `process` has those of one process, `store` those of all brokers on a store, and `exposition`
answers scrapes.
"""
