"""Fairlane: a durable, ordered message queue on the SQL database you already run."""
