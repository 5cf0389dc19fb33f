"""Stores: one contract, two implementations."""
