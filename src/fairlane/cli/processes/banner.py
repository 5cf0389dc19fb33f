"""The log lines at startup: addresses, the store, and warnings about unsafe settings."""

from __future__ import annotations

import ipaddress
import logging
import re
import socket
from collections.abc import Iterator, Mapping, Sequence
from importlib.metadata import version
from urllib.parse import parse_qsl, urlencode

import msgspec

from fairlane.config import Settings, flags, pg_sslmode
from fairlane.runtime.process import warning_of
from fairlane.wire.monitoring import Setting

_HARMLESS = frozenset({"host", "port", "dbname", "database", "user", "sslmode", "application_name"})
"""Options of a PostgreSQL URL that hold no secret. Other options may, such as password, sslpassword and passfile."""

log = logging.getLogger("fairlane")


def announce(settings: Settings, sockets: Mapping[str, Sequence[socket.socket]]) -> None:
    workers = f", {settings.workers} workers" if settings.workers > 1 else ""
    scheme = "http" if settings.tls_cert is None else "https"
    ports = {kind: opened[0].getsockname()[1] for kind, opened in sockets.items() if opened}
    api = f"{scheme}://{_in_url(settings.host)}:{ports['api']}" if "api" in ports else f"unix:{settings.socket}"
    log.info(
        "fairlane %(version)s on %(api)s, store %(store)s%(workers)s",
        {"version": version("fairlane"), "api": api, "store": mask_password(settings.store), "workers": workers},
    )
    if "api" in ports:
        log.info(
            "API documentation at %(scheme)s://%(host)s:%(port)d/docs",
            {"scheme": scheme, "host": _in_url(_browsable(settings.host)), "port": ports["api"]},
        )
    if settings.hooks_listen is not None:
        log.info(
            "webhooks only on %(scheme)s://%(host)s:%(port)d/hook/",
            {"scheme": scheme, "host": settings.hooks_listen.rpartition(":")[0], "port": ports["hooks"]},
        )
    if settings.metrics_listen is not None:
        log.info(
            "metrics on http://%(host)s:%(port)d/metrics",
            {"host": settings.metrics_listen.rpartition(":")[0], "port": ports["metrics"]},
        )
    for warning in warnings(settings):
        log.warning("%(warning)s", {"warning": warning})


def warnings(settings: Settings) -> Iterator[str]:
    """Yield a warning for each setting that puts messages or secrets at risk."""
    if settings.insecure_no_auth:
        where = settings.host or "every address"
        yield f"listening on {where} without authentication: anyone who can reach it can push, pop and delete"
    if settings.tls_cert is not None and (readable := warning_of(settings.tls_key or settings.tls_cert)):
        yield readable
    for name, url in (("store", settings.store), ("listen_url", settings.listen_url)):
        mode, hosts = tls_of(url or "")
        if hosts and mode != "verify-full":
            yield (
                f"PostgreSQL at {hosts} is used without verified TLS (sslmode is {mode}): an attacker on the network "
                f"can read and change messages; add sslmode=verify-full&sslrootcert=/path/of/ca.pem to {name}"
            )
    if settings.store == "sqlite:///:memory:":
        yield "the store is in memory: all messages are lost when the broker stops"
    if settings.allow_unsafe:
        yield "allow_unsafe is on: the broker accepts a store that may lose committed messages"
    if "*" in settings.allowed_hosts.split(","):
        yield "allowed_hosts is *: a web page whose host name resolves to this address can push, pop and delete"
    if settings.cors_origin is not None and "*" in settings.cors_origin:
        yield "cors_origin is *: any web page in a browser on this network can push, pop and delete"


def visible_settings(settings: Settings) -> list[Setting]:
    """Return all settings for display, with secrets masked."""
    helps, found = flags(), []
    for field in msgspec.structs.fields(Settings):
        value = getattr(settings, field.name)
        if field.name in ("store", "listen_url") and value is not None:
            value = mask_password(value)
        elif field.name in ("encryption_key", "jwt_secret"):
            value = "set" if value else "not set"
        default = getattr(settings, field.name) == field.default
        found.append(Setting(name=field.name, value=value, default=default, help=helps.get(field.name, "")))
    return found


def mask_password(url: str) -> str:
    """Return the URL of a store without its password, or only the scheme if the URL is ambiguous."""
    scheme, separator, rest = url.partition("://")
    if scheme == "sqlite" or not separator:
        return url
    credentials, at, location = rest.rpartition("@")
    location, question, query = location.partition("?")
    if "@" in query or "?" in credentials:
        return f"{scheme}{separator}..."
    user = credentials.partition(":")[0]
    options = parse_qsl(query, keep_blank_values=True, separator="&")
    visible = urlencode([(name, value) for name, value in options if name in _HARMLESS], safe="/")
    return f"{scheme}{separator}{user}{at}{location}{question if visible else ''}{visible}"


def tls_of(url: str) -> tuple[str, str]:
    """Return the sslmode of a PostgreSQL URL and its remote hosts, or "" if it has none."""
    if not url.startswith(("postgres://", "postgresql://")):
        return "", ""
    netloc, _, query = url.partition("://")[2].partition("?")
    options = dict(parse_qsl(query))
    named = options.get("host") or netloc.partition("/")[0].rpartition("@")[2]
    hosts = [one.strip("[]") for one in re.sub(r":\d+(?=,|$)", "", named).split(",")]
    away = [one for one in hosts if one and not one.startswith("/") and not is_loopback(one)]
    return options.get("sslmode") or pg_sslmode(), ", ".join(away)


def is_reachable(settings: Settings) -> bool:
    """Return True if the broker listens on an address that other machines can reach."""
    return settings.host != "none" and not is_loopback(settings.host)


def requires_auth(settings: Settings) -> bool:
    """Return True if the broker requires credentials before the first key exists.

    True with `--require-auth`, with an address that other machines can reach, and behind a proxy, where every request
    comes from loopback.
    """
    foreign = (name for name in map(str.strip, settings.allowed_hosts.split(",")) if name)
    proxied = settings.trusted_proxies.strip() or not all(is_loopback(name.strip("[]")) for name in foreign)
    return settings.require_auth or is_reachable(settings) or bool(proxied)


def is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _browsable(host: str) -> str:
    """Return an address that a browser can open, in place of a wildcard address."""
    return {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104


def _in_url(host: str) -> str:
    return f"[{host}]" if ":" in host else host
