"""The HTTP API of the broker: an HTTP/1.1 server, routes, authentication, metrics and the live stream."""
