"""Webhooks that come in, and their signatures."""
