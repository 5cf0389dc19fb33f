"""Requests that schemathesis makes from /openapi.json, against a broker in a process of its own."""
