"""The engine: every operation goes through a batcher, which merges what waits into one call of the store."""
