"""The contract of a store: what both stores promise, one module per family."""
