"""Fuzzing: bytes from atheris for each parser, and requests that schemathesis makes from /openapi.json."""
