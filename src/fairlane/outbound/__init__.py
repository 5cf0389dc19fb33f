"""Outbound HTTP requests: the client that commands, pollers and handlers share, and the addresses it may reach."""
