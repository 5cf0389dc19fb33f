"""Authentication and authorization of requests: credentials, tokens, login sessions and scopes."""
