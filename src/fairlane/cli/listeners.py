"""Listeners of a broker: its API on a host and port and at a path, webhooks alone elsewhere, and their certificates."""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from typing import TYPE_CHECKING

from fairlane.config import Settings
from fairlane.errors import InvalidRequest
from fairlane.http.browsers import Hosts
from fairlane.http.server import Limits, Proxies, Server, Tls, open_sockets, open_unix_socket

if TYPE_CHECKING:
    from fairlane.http.app import App

NO_HOST = "none"
"""For --host: no port at all, only --socket."""
Sockets = Mapping[str, Sequence[socket.socket]]
"""Those of `api`, of `hooks`, and `local` ones: at a path."""

log = logging.getLogger("fairlane")


@contextmanager
def open_listeners(settings: Settings) -> Iterator[Sockets]:
    """The listening sockets that the settings ask for."""
    with ExitStack() as stack:
        opened: dict[str, list[socket.socket]] = {"api": [], "hooks": [], "local": []}
        if settings.host != NO_HOST:
            opened["api"] = open_sockets(settings.host, settings.port)
        if settings.hooks_listen is not None:
            opened["hooks"] = open_sockets(*host_and_port(settings.hooks_listen), "--hooks-listen")
        if settings.socket is not None:
            opened["local"] = [stack.enter_context(open_unix_socket(settings.socket))]
        for one in (*opened["api"], *opened["hooks"]):
            stack.enter_context(closing(one))
        yield opened


def host_and_port(text: str) -> tuple[str, int]:
    """`HOST:PORT`, with brackets around an IPv6 address. InvalidRequest if it is none."""
    host, colon, port = text.rpartition(":")
    if not colon or not port.isdecimal() or int(port) > 65535 or (":" in host and not host.startswith("[")):
        raise InvalidRequest(f"hooks_listen is {text!r:.80}; it must be HOST:PORT, as 0.0.0.0:6633 or [::]:6633")
    return host.removeprefix("[").removesuffix("]"), int(port)


class Listeners:
    """The listeners of one broker process."""

    def __init__(self, settings: Settings) -> None:
        """InvalidRequest if they cannot work as they are set."""
        self._settings = settings
        self._tls = self._hooks_tls = None
        cert, key = settings.tls_cert, settings.tls_key or settings.tls_cert
        if cert is not None and key is not None:
            self._tls = Tls(cert, key, settings.tls_client_ca)
            self._hooks_tls = Tls(cert, key)  # senders of webhooks have no certificates
        elif settings.tls_key or settings.tls_client_ca:
            raise InvalidRequest("tls_key and tls_client_ca go with tls_cert, which is missing")
        self._proxies = Proxies(settings.trusted_proxies.split(","))
        if settings.hooks_listen is not None:
            host_and_port(settings.hooks_listen)
        if settings.host == NO_HOST and settings.socket is None:
            raise InvalidRequest(f"host is {NO_HOST}, and there is no socket either: nobody could reach this broker")

    async def start(self, app: App, sockets: Sockets) -> Server:
        settings = self._settings
        server = app.serve(
            limits(settings),
            hosts=Hosts([settings.host, *settings.allowed_hosts.split(",")]),
            cors_origin=settings.cors_origin,
            proxies=self._proxies,
        )
        await server.listen(sockets["local"])
        await server.listen(sockets["api"], tls=self._tls)
        if sockets["hooks"]:
            from fairlane.http.hooks_door import HooksDoor

            await server.listen(sockets["hooks"], door=HooksDoor(app), tls=self._hooks_tls)
        if self._tls is not None:
            asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, self.reload)
        return server

    def reload(self) -> None:
        """Read the certificates again, for new connections; those that are there go on."""
        try:
            for tls in (self._tls, self._hooks_tls):
                if tls is not None:
                    tls.reload()
        except InvalidRequest as error:
            log.error("%(error)s; the one that was read before goes on", {"error": error})
        else:
            log.info("read the certificate in %(file)s again", {"file": self._settings.tls_cert})


def limits(settings: Settings) -> Limits:
    """The limits of connections. What one address may have is a part of what all may."""
    share = settings.peer_share
    return Limits(
        connections_max=settings.connections_max,
        inflight_bytes_max=settings.inflight_bytes_max,
        peer_connections_max=max(1, int(settings.connections_max * share)),
        peer_requests_max=max(1, int(min(settings.polls_max or sys.maxsize, settings.connections_max) * share)),
        peer_bytes_max=max(1, int(settings.inflight_bytes_max * share)),
    )
