"""The banner at start: what runs where, and what about it is unsafe."""

from __future__ import annotations

import ipaddress
import logging
from collections.abc import Iterator
from importlib.metadata import version
from urllib.parse import parse_qsl, urlencode

import msgspec

from fairlane.config import Settings, flags
from fairlane.wire.system import Setting

_SHOWN = frozenset({"host", "port", "dbname", "database", "user", "sslmode", "application_name"})
"""Options of a PostgreSQL URL that tell no secret; others may (password, sslpassword, passfile)."""

log = logging.getLogger("fairlane")


def announce(settings: Settings, port: int) -> None:
    workers = f", {settings.workers} workers" if settings.workers > 1 else ""
    log.info(
        "fairlane %s on %s, store %s%s",
        version("fairlane"),
        f"http://{_in_url(settings.host)}:{port}",
        masked(settings.store),
        workers,
    )
    log.info("the API is described at http://%s:%d/docs", _in_url(_reachable(settings.host)), port)
    for warning in warnings(settings):
        log.warning("%s", warning)


def warnings(settings: Settings) -> Iterator[str]:
    """Everything about these settings that may cost somebody their messages or their secrets."""
    if not _loopback(settings.host):
        yield (
            f"listening on {settings.host or 'every address'} without authentication: "
            "anybody who reaches it may push, pop and delete"
        )
    if settings.store == "sqlite:///:memory:":
        yield "the store is in memory: everything is gone when the broker stops"
    if settings.allow_unsafe:
        yield "allow_unsafe is on: a store that may lose what it committed is accepted"
    if "*" in settings.allowed_hosts.split(","):
        yield "allowed_hosts is *: a page whose name leads to this address may push, pop and delete"
    if settings.cors_origin is not None and "*" in settings.cors_origin:
        yield "cors_origin is *: any page that a browser on this network shows may push, pop and delete"


def shown(settings: Settings) -> list[Setting]:
    """All settings, what is secret masked, for those who look at the broker."""
    helps, found = flags(), []
    for field in msgspec.structs.fields(Settings):
        value = getattr(settings, field.name)
        if field.name in ("store", "listen_url") and value is not None:
            value = masked(value)
        elif field.name == "encryption_key":
            value = "set" if value else "not set"
        default = getattr(settings, field.name) == field.default
        found.append(Setting(name=field.name, value=value, default=default, help=helps.get(field.name, "")))
    return found


def masked(url: str) -> str:
    """The URL of a store without its password, wherever that stands; the scheme alone if it cannot be told."""
    scheme, separator, rest = url.partition("://")
    if scheme == "sqlite" or not separator:
        return url
    credentials, at, location = rest.rpartition("@")
    location, question, query = location.partition("?")
    if "@" in query or "?" in credentials:
        return f"{scheme}{separator}..."
    user = credentials.partition(":")[0]
    options = parse_qsl(query, keep_blank_values=True, separator="&")
    shown = urlencode([(name, value) for name, value in options if name in _SHOWN], safe="/")
    return f"{scheme}{separator}{user}{at}{location}{question if shown else ''}{shown}"


def _loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _reachable(host: str) -> str:
    """An address to click on: every address is none."""
    return {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104


def _in_url(host: str) -> str:
    return f"[{host}]" if ":" in host else host
