"""Incoming webhooks and their signatures."""
