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
from fairlane.http.server.server import Door, Handler, OpenDoor, Server
from fairlane.http.server.shares import Proxies, network_of
from fairlane.http.server.sockets import BACKLOG, open_sockets, open_unix_socket
from fairlane.http.server.tls import Tls

__all__ = [
    "BACKLOG",
    "Door",
    "Handler",
    "Limits",
    "OpenDoor",
    "Proxies",
    "Refused",
    "Request",
    "Response",
    "Server",
    "Tls",
    "bad_request",
    "error_response",
    "json_response",
    "network_of",
    "open_sockets",
    "open_unix_socket",
    "overloaded",
    "too_large",
]
