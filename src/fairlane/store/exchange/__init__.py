"""Export of queues to lines of JSON, and import from them, on both stores."""
