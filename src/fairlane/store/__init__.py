"""Stores: one contract, two implementations."""

from fairlane import server_extra as _extra  # noqa: F401
