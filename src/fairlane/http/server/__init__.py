"""The HTTP/1.1 server: sockets, parsing, connections, deadlines and answers. It knows nothing of queues.

It is our own because no other Python server closes a silent connection, a slow header and a slow body, cancels the
handler of a client that left, and takes back an answer that nobody got; docs/http-server.md has the figures."""

from fairlane.http.server.message import (
    Limits,
    Refused,
    Request,
    Response,
    bad_request,
    error_response,
    json_response,
    overloaded,
    too_large,
)
from fairlane.http.server.server import BACKLOG, Door, Handler, OpenDoor, Server, open_sockets

__all__ = [
    "BACKLOG",
    "Door",
    "Handler",
    "Limits",
    "OpenDoor",
    "Refused",
    "Request",
    "Response",
    "Server",
    "bad_request",
    "error_response",
    "json_response",
    "open_sockets",
    "overloaded",
    "too_large",
]
