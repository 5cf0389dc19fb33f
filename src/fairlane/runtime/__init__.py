"""The runtime: clocks, limits, background services, batching, and the loop that consumes messages."""
