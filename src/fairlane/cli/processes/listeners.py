"""Listeners of a broker: TCP and Unix sockets for the API, a socket for webhooks only, and their certificates."""

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
from fairlane.http.cross_origin import Hosts
from fairlane.http.server import Limits, Proxies, Server, Tls, open_sockets, open_unix_socket

if TYPE_CHECKING:
    from fairlane.http.app import HttpApp

NO_HOST = "none"
"""Value of --host that opens no port, only --socket."""
Sockets = Mapping[str, Sequence[socket.socket]]
"""Listening sockets by kind: `api`, `hooks`, `metrics`, and `local` for Unix sockets."""

log = logging.getLogger("fairlane")


@contextmanager
def open_listeners(settings: Settings) -> Iterator[Sockets]:
    """Open the listening sockets of the settings."""
    with ExitStack() as stack:
        opened: dict[str, list[socket.socket]] = {"api": [], "hooks": [], "metrics": [], "local": []}
        if settings.host != NO_HOST:
            opened["api"] = open_sockets(settings.host, settings.port)
        if settings.hooks_listen is not None:
            opened["hooks"] = open_sockets(*host_and_port(settings.hooks_listen), "--hooks-listen")
        if settings.metrics_listen is not None:
            opened["metrics"] = open_sockets(
                *host_and_port(settings.metrics_listen, "metrics_listen"), "--metrics-listen"
            )
        if settings.socket is not None:
            opened["local"] = [stack.enter_context(open_unix_socket(settings.socket))]
        for one in (*opened["api"], *opened["hooks"], *opened["metrics"]):
            stack.enter_context(closing(one))
        yield opened


def host_and_port(text: str, setting: str = "hooks_listen") -> tuple[str, int]:
    """Parse `HOST:PORT`, with brackets around an IPv6 address. Raises InvalidRequest if it is malformed."""
    host, colon, port = text.rpartition(":")
    if not colon or not port.isdecimal() or int(port) > 65535 or (":" in host and not host.startswith("[")):
        raise InvalidRequest(f"{setting} is {text!r:.80}; it must be HOST:PORT, like 0.0.0.0:6633 or [::]:6633")
    return host.removeprefix("[").removesuffix("]"), int(port)


class Listeners:
    """The listeners of one broker process."""

    def __init__(self, settings: Settings) -> None:
        """Raise InvalidRequest if the settings are invalid."""
        self._settings = settings
        self._tls = self._hooks_tls = None
        cert, key = settings.tls_cert, settings.tls_key or settings.tls_cert
        if cert is not None and key is not None:
            self._tls = Tls(cert, key, settings.tls_client_ca)
            self._hooks_tls = Tls(cert, key)  # senders of webhooks have no certificates
        elif settings.tls_key or settings.tls_client_ca:
            raise InvalidRequest("tls_key and tls_client_ca need tls_cert")
        self._proxies = Proxies(settings.trusted_proxies.split(","))
        if settings.hooks_listen is not None:
            host_and_port(settings.hooks_listen)
        if settings.metrics_listen is not None:
            host_and_port(settings.metrics_listen, "metrics_listen")
        if settings.host == NO_HOST and settings.socket is None:
            raise InvalidRequest(f"host is {NO_HOST} and socket is not set; nothing could reach the broker")

    async def start(self, app: HttpApp, sockets: Sockets) -> Server:
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
            from fairlane.http.restricted_listeners import WebhookListener

            await server.listen(sockets["hooks"], policy=WebhookListener(app), tls=self._hooks_tls)
        if sockets["metrics"]:
            from fairlane.http.restricted_listeners import MetricsListener

            await server.listen(sockets["metrics"], policy=MetricsListener(app))
        if self._tls is not None:
            asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, self.reload)
        return server

    def reload(self) -> None:
        """Reload the certificates for new connections. Existing connections continue."""
        try:
            for tls in (self._tls, self._hooks_tls):
                if tls is not None:
                    tls.reload()
        except InvalidRequest as error:
            log.error("%(error)s; keeping the previous certificate", {"error": error})
        else:
            log.info("reloaded the certificate in %(file)s", {"file": self._settings.tls_cert})


def limits(settings: Settings) -> Limits:
    """Return the connection limits. The limit per address is a share of the total."""
    share = settings.peer_share
    return Limits(
        connections_max=settings.connections_max,
        inflight_bytes_max=settings.inflight_bytes_max,
        peer_connections_max=max(1, int(settings.connections_max * share)),
        peer_requests_max=max(1, int(min(settings.polls_max or sys.maxsize, settings.connections_max) * share)),
        peer_bytes_max=max(1, int(settings.inflight_bytes_max * share)),
    )
