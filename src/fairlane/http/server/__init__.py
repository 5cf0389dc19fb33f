"""The HTTP/1.1 server: sockets, parsing, connections, deadlines and answers. It knows nothing of queues.

It is our own because no other Python server closes a silent connection, a slow header and a slow body, cancels the
handler of a client that left, and takes back an answer that nobody got; docs/http-server.md has the figures."""

from fairlane.http.server.limits import Limits, Refused, bad_request, overloaded, too_large
from fairlane.http.server.listen import BACKLOG, open_sockets
from fairlane.http.server.message import Request, Response, error_response, json_response
from fairlane.http.server.server import Door, Handler, OpenDoor, Server

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
