"""Settings of the broker process.

Options on the command line override `FAIRLANE_*` environment variables, which override an optional TOML file.
"""

from __future__ import annotations

import logging
import os
import tomllib
from collections.abc import Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, Any, Literal, get_type_hints

import msgspec

from fairlane.errors import InvalidRequest
from fairlane.model.limits import POLLS_MAX
from fairlane.runtime.process import warning_of

EMBEDDED = "postgres"
"""Store name of the embedded PostgreSQL, which `fairlane serve` runs in its data directory."""
SECRET_NAMES = "*SECRET*"  # noqa: S105
_OURS = "FAIRLANE_SECRET_"
_OTEL = (
    *("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT"),
    *("OTEL_TRACES_EXPORTER", "OTEL_METRICS_EXPORTER"),
)

log = logging.getLogger("fairlane")


def _flag(help: str) -> Any:
    """Return the metadata of a setting that is also an option of `fairlane serve`, with its help text."""
    return msgspec.Meta(description=help)


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """All settings of a broker process."""

    store: Annotated[
        str, _flag("Database: a file like queue.db, a postgresql:// URL, or postgres for embedded PostgreSQL.")
    ] = "sqlite:///fairlane.db"
    host: Annotated[str, _flag("Address to listen on, or none to listen only on --socket.")] = "127.0.0.1"
    port: Annotated[int, _flag("Port to listen on.")] = 6632
    socket: Annotated[str | None, _flag("Path of a Unix socket to listen on as well, for the current user only.")] = (
        None
    )
    hooks_listen: Annotated[str | None, _flag("HOST:PORT of a listener that serves only webhooks.")] = None
    metrics_listen: Annotated[
        str | None, _flag("HOST:PORT of a listener that serves /metrics, /livez and /readyz without a key or TLS.")
    ] = None
    tls_cert: Annotated[str | None, _flag("Certificate chain in PEM. Enables TLS; reloaded on SIGHUP.")] = None
    tls_key: Annotated[str | None, _flag("Private key, if it is not in the certificate file.")] = None
    tls_client_ca: Annotated[str | None, _flag("Require client certificates signed by this CA.")] = None
    trusted_proxies: Annotated[
        str, _flag("Comma-separated addresses and networks of proxies whose X-Forwarded-For is trusted.")
    ] = ""
    peer_share: Annotated[
        float, _flag("Share of connections, polls and bytes that one address may use, from 0 to 1.")
    ] = 0.25
    """Loopback addresses and trusted proxies are exempt, because many clients share them."""
    workers: Annotated[int, _flag("Number of broker processes. More than one needs PostgreSQL.")] = 1
    log_format: Annotated[Literal["text", "json"], _flag("Log format: text or json.")] = "text"
    otel: Annotated[
        Literal["auto", "on", "off"], _flag("OpenTelemetry spans and metrics: on, off, or auto to follow OTEL_*.")
    ] = "auto"
    data_dir: Annotated[
        str, _flag("Directory for the journal, locks and embedded PostgreSQL. Not shared between brokers.")
    ] = "fairlane-data"
    listen_url: Annotated[str | None, _flag("URL of PostgreSQL itself, if --store is a connection pooler.")] = None
    statement_cache: Annotated[
        bool, _flag("Cache prepared statements. Turn off for poolers that do not support them.")
    ] = True
    allowed_hosts: Annotated[
        str, _flag("Comma-separated host names and addresses that clients may use for the broker.")
    ] = ""
    """Loopback names and the listening address are always allowed. `*` allows any."""
    insecure_no_auth: Annotated[bool, _flag("Require no keys: anyone who can reach the port can do everything.")] = (
        False
    )
    """Otherwise a broker that does not listen on loopback needs keys or tokens."""
    require_auth: Annotated[bool, _flag("Require a key or token for every request, on loopback too.")] = False
    """Always on with `--trusted-proxies`, or if `--allowed-hosts` has a name that is not a loopback name."""
    audit_days: Annotated[int, _flag("Days to keep audit log entries; 0 keeps them forever.")] = 365
    cors_origin: Annotated[str | None, _flag("Origins whose web pages may call the API.")] = None
    secret_names: Annotated[
        str, _flag("Patterns of environment variables that specs may read, besides FAIRLANE_SECRET_*.")
    ] = SECRET_NAMES
    """Comma-separated. `*` matches any text."""
    outbound_allow: Annotated[
        str, _flag("Comma-separated private hosts and networks that commands and pollers may call.")
    ] = ""
    pollers: Annotated[bool, _flag("Run the pollers of applied specs. Only one broker runs a poller at a time.")] = True
    """A broker without them leaves the pollers to other brokers or to `fairlane poll`."""
    metrics_series_max: Annotated[
        int, _flag("Maximum number of queues and groups with their own metrics; the rest is summed.")
    ] = 1000
    connections_max: Annotated[int, _flag("Maximum client connections per process.")] = 10_000
    polls_max: Annotated[int, _flag("Maximum waiting long polls per process.")] = POLLS_MAX
    """Less than connections_max, so that pushes and acks can connect."""
    allow_unsafe: Annotated[bool, _flag("Accept a store that may lose committed messages.")] = False
    journal: Annotated[bool, _flag("Keep pushes and acks in the data directory while the store is unavailable.")] = True
    inflight_bytes_max: Annotated[int, _flag("Maximum bytes of requests and unread responses per process.")] = (
        256 * 1024 * 1024
    )
    """Above it, requests are refused before they are read."""
    tail_cache_bytes: Annotated[
        int,
        _flag(
            "Maximum bytes of messages that a process keeps in memory for its next pops; 0 reads all from the store."
        ),
    ] = 64 * 1024 * 1024
    failed_operations_seconds: Annotated[int, _flag("Seconds to keep failed operations; 0 keeps them forever.")] = (
        30 * 86_400
    )
    journal_bytes_max: Annotated[
        int, _flag("Maximum size of the journal in bytes. Above it, pushes and acks get 429.")
    ] = 1024**3
    store_timeout_seconds: Annotated[
        float, _flag("Store timeout in seconds. A push or ack that takes longer goes to the journal.")
    ] = 2.0
    """The store is unavailable if a write takes this long, or if it does not answer for a quarter of this time."""
    wait_seconds_max: Annotated[
        float, _flag("Seconds that pushes and acks wait for a busy store. Then they become operations and get 202.")
    ] = 2.0
    """While acks become operations, pops are refused."""
    push_operations_max: Annotated[
        int, _flag("Maximum number of pending push operations. Above it, pushes get 429.")
    ] = 10_000
    ack_operations_max: Annotated[int, _flag("Maximum number of pending ack operations. Above it, acks get 429.")] = (
        50_000
    )
    encryption_key: str = ""
    """Keys for encrypted queues, each 64 hex digits or 32 bytes in base64. New messages use the first one."""
    encryption_key_file: str | None = None
    """A file with encryption keys, in the format of `encryption_key`."""
    sealed_queues: str = ""
    """Comma-separated queues, or prefixes with `*`, that are always encrypted. Plain messages are not delivered."""
    jwt_secret: str = ""
    """Accept JWTs signed with this secret (HS256). At least 32 bytes."""
    jwt_public_key: str = ""
    """Accept JWTs verified by this public key: PEM or a file. RSA (RS256), P-256 (ES256) or Ed25519 (EdDSA)."""
    jwt_jwks_url: str = ""
    """Accept JWTs of an identity provider that publishes its keys at this URL: https, or a host in outbound_allow."""
    jwt_issuer: str | None = None
    """The `iss` claim that tokens must have."""
    jwt_audience: str | None = None
    """The `aud` claim that tokens must have. If unset, tokens with any audience are refused."""
    jwt_claims: str = ""
    """Other names of claims: `role=...,roles=...,scopes=...,tenant=...,sub=...`, any of them."""
    retention_interval_seconds: float = 10.0
    """Seconds between runs of the retention rules. 0 leaves them to other brokers."""


def flags() -> dict[str, str]:
    """Return the settings that are options of `fairlane serve`, with their help texts."""
    hints = get_type_hints(Settings, include_extras=True)
    return {name: hint.__metadata__[0].description for name, hint in hints.items() if hasattr(hint, "__metadata__")}


def load_settings(flags: dict[str, Any], config_file: Path | None = None) -> Settings:
    """Load settings from options, environment and file. Raises InvalidRequest that names the source of a bad value."""
    values: dict[str, Any] = {}
    if config_file is not None:
        try:
            values = _checked(tomllib.loads(config_file.read_text(encoding="utf-8")), str(config_file))
        except OSError as error:
            raise InvalidRequest(f"cannot read {config_file}: {error.strerror}") from None
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise InvalidRequest(f"{config_file} is not TOML: {error}") from None
    for name in Settings.__struct_fields__:
        given = os.environ.get(f"FAIRLANE_{name.upper()}")
        if given is not None:
            values |= _checked({name: given}, f"FAIRLANE_{name.upper()}")
    settings = Settings(**values | {name: value for name, value in flags.items() if value is not None})
    from fairlane.store.opening import store_url  # not needed to import this module

    if settings.store == EMBEDDED:
        return settings
    return msgspec.structs.replace(settings, store=store_url(settings.store))


def named_variables(names: Sequence[str], *, allowed: str = SECRET_NAMES) -> list[str]:
    """Return the values of environment variables that a spec names for secrets.

    Raises InvalidRequest if one is not set, or not allowed: otherwise the author of a spec could probe any variable of
    the broker, or send it elsewhere.
    """
    for name in names:
        if not _may_name(name, allowed):
            raise InvalidRequest(
                f"a spec may not read the environment variable {name:.100}; it may read {_OURS}* and those that "
                f"secret_names allows ({allowed})"
            )
        if not os.environ.get(name):
            raise InvalidRequest(
                f"the environment variable {name:.100} is not set for the broker, but a spec needs it for a secret; "
                "set it and restart the broker"
            )
    return [os.environ[name] for name in names]


def own_variables(names: Sequence[str]) -> list[str]:
    """Like `named_variables`, for commands in the user's own environment: any variable except broker settings."""
    for name in names:
        if not _may_name(name, "*"):
            raise InvalidRequest(f"{name:.100} is a setting of the broker and cannot be a secret of a spec")
        if not os.environ.get(name):
            raise InvalidRequest(f"the environment variable {name:.100} is not set, but the spec needs it for a secret")
    return [os.environ[name] for name in names]


def _may_name(name: str, allowed: str) -> bool:
    if name.upper().startswith("FAIRLANE_"):
        return name.startswith(_OURS)
    return any(fnmatchcase(name, pattern.strip()) for pattern in allowed.split(","))


def child_environment() -> dict[str, str]:
    """Return the environment for child processes, without the broker's settings, which may be secret."""
    return {
        name: value for name, value in os.environ.items() if not name.startswith("FAIRLANE_") or name.startswith(_OURS)
    }


def wants_otel(setting: str) -> bool:
    """Return True if OpenTelemetry is on, or is `auto` and OTEL_* name a collector or exporter."""
    if setting not in ("auto", "on", "off"):
        raise InvalidRequest(f"otel is {setting!r:.40}; it must be auto, on or off")
    if setting != "auto" or os.environ.get("OTEL_SDK_DISABLED", "").lower() == "true":
        return setting == "on"
    return any(os.environ.get(name) for name in _OTEL)


def pg_sslmode() -> str:
    """Return the sslmode of PostgreSQL URLs that do not set one."""
    return os.environ.get("PGSSLMODE") or "prefer"


def encryption_key(settings: Settings) -> str:
    """Return the keys for encrypted queues from the setting or its file, or "" if there are none."""
    if settings.encryption_key_file is None:
        return settings.encryption_key
    if warning := warning_of(settings.encryption_key_file):
        log.warning("%(warning)s", {"warning": warning})
    try:
        return Path(settings.encryption_key_file).read_text(encoding="ascii")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidRequest(f"cannot read the encryption keys in {settings.encryption_key_file}: {error}") from None


def _checked(values: dict[str, Any], where: str) -> dict[str, Any]:
    unknown = sorted(set(values) - set(Settings.__struct_fields__))
    if unknown:
        raise InvalidRequest(
            f"{where}: unknown setting {unknown[0]!r}; known settings are {', '.join(Settings.__struct_fields__)}"
        )
    try:
        settings = msgspec.convert(values, Settings, strict=False)
    except msgspec.ValidationError as error:
        raise InvalidRequest(f"{where}: {error}") from None
    return {name: getattr(settings, name) for name in values}
