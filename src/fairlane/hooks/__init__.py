"""Webhooks that come in: who signed them."""
