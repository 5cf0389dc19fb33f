"""The HTTP/1.1 server: sockets, parsing, connections, deadlines and answers. It knows nothing of queues.

No other Python server closes silent connections, slow headers and slow bodies, cancels the handler of a client that
disconnects, and takes back an answer that was not delivered. docs/http-server.md has the figures.
"""

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
from fairlane.http.server.peer_limits import Proxies, network_of
from fairlane.http.server.server import AcceptAll, Handler, RequestPolicy, Server
from fairlane.http.server.sockets import BACKLOG, open_sockets, open_unix_socket
from fairlane.http.server.tls import Tls

__all__ = [
    "BACKLOG",
    "AcceptAll",
    "Handler",
    "Limits",
    "Proxies",
    "Refused",
    "Request",
    "RequestPolicy",
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
