"""Sockets to listen on, bound before the processes that accept from them begin."""

from __future__ import annotations

import contextlib
import errno
import socket

from fairlane.errors import InvalidRequest, Unavailable

BACKLOG = 4096


def open_sockets(host: str, port: int) -> list[socket.socket]:
    """One listening socket for each address of `host`, all on one port, which is chosen if `port` is 0."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (socket.gaierror, UnicodeError) as error:
        raise InvalidRequest(f"{host!r:.200} is no address to listen on: {error}") from None
    except OverflowError:
        raise InvalidRequest(f"port is {port}; it must be 0 to 65535") from None
    opened: list[socket.socket] = []
    with contextlib.ExitStack() as undo:
        for family, address in dict.fromkeys((family, address) for family, _, _, _, address in found):
            if opened:
                port = opened[0].getsockname()[1]
            listening = undo.enter_context(socket.socket(family, socket.SOCK_STREAM))
            try:
                _listen(listening, (address[0], port, *address[2:]))
            except OSError as error:
                taken = "; --port names another, 0 takes a free one" if error.errno == errno.EADDRINUSE else ""
                raise Unavailable(f"cannot listen on {host} port {port}: {error.strerror}{taken}") from None
            opened.append(listening)
        undo.pop_all()
    return opened


def _listen(listening: socket.socket, address: tuple[object, ...]) -> None:
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if listening.family == socket.AF_INET6:
        listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
    listening.bind(address)
    listening.listen(BACKLOG)
    listening.setblocking(False)
