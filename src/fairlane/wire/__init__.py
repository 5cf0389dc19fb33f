"""The JSON of the API, declared once for server and client."""
