"""Outbound requests, to other people's servers: the one client by which commands and pollers leave, and where it may
go."""
