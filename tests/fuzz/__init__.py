"""Bytes that atheris makes for parsers, and requests that schemathesis makes from /openapi.json for a whole broker."""
