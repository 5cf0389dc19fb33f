"""The broker: the verbs of the queue over a store, an operations table and a journal."""
