"""Listening sockets for a host and port, or for a path."""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import stat
from collections.abc import Iterator

from fairlane.errors import InvalidRequest, Unavailable
from fairlane.runtime.process import LockFile

BACKLOG = 4096


def open_sockets(host: str, port: int, option: str = "--port") -> list[socket.socket]:
    """Return a listening socket for each address of `host`, all on one port. The system chooses it if `port` is 0."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (socket.gaierror, UnicodeError) as error:
        raise InvalidRequest(f"{host!r:.200} is not an address to listen on: {error}") from None
    except OverflowError:
        raise InvalidRequest(f"port is {port}; it must be 0 to 65535") from None
    opened: list[socket.socket] = []
    with contextlib.ExitStack() as undo:
        for family, address in dict.fromkeys((family, address) for family, _, _, _, address in found):
            if opened:
                port = opened[0].getsockname()[1]
            listening = undo.enter_context(socket.socket(family, socket.SOCK_STREAM))
            try:
                listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                if family == socket.AF_INET6:
                    listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
                _listen(listening, (address[0], port, *address[2:]))
            except OSError as error:
                taken = f"; {option} names another, 0 takes a free one" if error.errno == errno.EADDRINUSE else ""
                raise Unavailable(f"cannot listen on {host} port {port}: {error.strerror}{taken}") from None
            opened.append(listening)
        undo.pop_all()
    return opened


@contextlib.contextmanager
def open_unix_socket(path: str) -> Iterator[socket.socket]:
    """Open a listening socket at a path, only for its owner (mode 0600), and remove it at the end.

    A socket that a killed process left behind is replaced. Any other file is not.
    """
    try:
        lock = LockFile(f"{path}.lock")
    except BlockingIOError:
        raise Unavailable(f"another broker listens at {path}; --socket names another path") from None
    except OSError as error:
        raise InvalidRequest(f"cannot listen at {path}: {error.strerror}; --socket names another path") from None
    with contextlib.ExitStack() as stack:
        stack.callback(lock.release)
        listening = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
        mask = os.umask(0o177)
        try:
            _remove_stale(path)
            _listen(listening, path)
        except OSError as error:
            raise InvalidRequest(f"cannot listen at {path}: {error.strerror or error}") from None
        finally:
            os.umask(mask)
        stack.callback(_remove_own, path, os.stat(path).st_ino)
        yield listening


def _remove_own(path: str, made: int) -> None:
    with contextlib.suppress(OSError):
        if os.stat(path).st_ino == made:
            os.unlink(path)


def _remove_stale(path: str) -> None:
    """Remove a socket without a listener. Only the broker that holds the lock does this."""
    try:
        if not stat.S_ISSOCK(os.stat(path).st_mode):
            raise InvalidRequest(f"cannot listen at {path}: there is a file that is not a socket")
    except FileNotFoundError:
        return
    with contextlib.closing(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)) as probe:
        probe.settimeout(1.0)
        try:
            probe.connect(path)
        except ConnectionRefusedError:
            os.unlink(path)
            return
    raise Unavailable(f"another program listens at {path}; --socket names another path")


def _listen(listening: socket.socket, where: object) -> None:
    listening.bind(where)  # type: ignore[arg-type]
    listening.listen(BACKLOG)
    listening.setblocking(False)
