"""Settings of the broker process: flags, `FAIRLANE_*` in the environment, an optional TOML file, in this order of
weight."""

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
"""Stands for the PostgreSQL that `fairlane serve` starts in its data directory."""
SECRET_NAMES = "*SECRET*"  # noqa: S105
_OURS = "FAIRLANE_SECRET_"
_OTEL = (
    *("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT"),
    *("OTEL_TRACES_EXPORTER", "OTEL_METRICS_EXPORTER"),
)

log = logging.getLogger("fairlane")


def _flag(help: str) -> Any:
    """A setting that is also an option of `fairlane serve`, and the help of that."""
    return msgspec.Meta(description=help)


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    store: Annotated[str, _flag("A file such as queue.db, postgresql://..., or postgres for an embedded one")] = (
        "sqlite:///fairlane.db"
    )
    host: Annotated[str, _flag("Address to listen on; none with --socket for no port")] = "127.0.0.1"
    port: Annotated[int, _flag("Port to listen on")] = 6632
    socket: Annotated[str | None, _flag("Path of a unix socket to listen at too, for this user alone")] = None
    hooks_listen: Annotated[str | None, _flag("HOST:PORT where webhooks are taken, and nothing else is there")] = None
    tls_cert: Annotated[str | None, _flag("Certificate and those above it, PEM: speak TLS; read again on SIGHUP")] = (
        None
    )
    tls_key: Annotated[str | None, _flag("Key of the certificate, if it is not in its file")] = None
    tls_client_ca: Annotated[str | None, _flag("Let in whose certificate this authority signed, and nobody else")] = (
        None
    )
    trusted_proxies: Annotated[
        str, _flag("Addresses and networks whose X-Forwarded-For is believed, separated by commas")
    ] = ""
    peer_share: Annotated[float, _flag("Part of connections, polls and bytes that one address may have")] = 0.25
    """Loopback and trusted proxies may have all: many ask from there."""
    workers: Annotated[int, _flag("Processes; more than one needs PostgreSQL")] = 1
    log_format: Annotated[Literal["text", "json"], _flag("text or json")] = "text"
    otel: Annotated[
        Literal["auto", "on", "off"], _flag("Spans and metrics by OpenTelemetry; auto: if OTEL_* ask for them")
    ] = "auto"
    data_dir: Annotated[str, _flag("For what is not the store; one broker each")] = "fairlane-data"
    listen_url: Annotated[str | None, _flag("PostgreSQL itself, if --store leads to a pooler")] = None
    statement_cache: Annotated[bool, _flag("Off for a pooler that cannot keep prepared statements")] = True
    allowed_hosts: Annotated[str, _flag("Names and addresses by which clients ask for it, separated by commas")] = ""
    """Beside those of loopback and where it listens; `*` for any."""
    insecure_no_auth: Annotated[bool, _flag("Ask nobody for a key: whoever reaches the port may do everything")] = False
    """Otherwise a broker that listens elsewhere than on loopback needs keys or tokens."""
    require_auth: Annotated[bool, _flag("Ask for a key or token from the start, on loopback too")] = False
    """Always on with `--trusted-proxies`, or with a name in `--allowed-hosts` that is not loopback's."""
    audit_days: Annotated[int, _flag("How long entries of the audit log stay; 0 for ever")] = 365
    cors_origin: Annotated[str | None, _flag("Let pages of these origins call the API")] = None
    secret_names: Annotated[str, _flag("Environment variables that specs may name, besides FAIRLANE_SECRET_*")] = (
        SECRET_NAMES
    )
    """Separated by commas; `*` stands for any text."""
    outbound_allow: Annotated[
        str, _flag("Hosts and networks inside that commands may call and pollers read, separated by commas")
    ] = ""
    pollers: Annotated[bool, _flag("Read what the pollers of applied specs declare; one broker does at a time")] = True
    """Off leaves that to other brokers and to `fairlane poll`."""
    metrics_series_max: Annotated[int, _flag("Queues that metrics show by name, and groups; the rest is added up")] = (
        1000
    )
    connections_max: Annotated[int, _flag("Connections of clients, in each process")] = 10_000
    polls_max: Annotated[int, _flag("Long polls that wait at once, in each process")] = POLLS_MAX
    """Fewer than connections, so that pushes and acks find one."""
    allow_unsafe: Annotated[bool, _flag("Accept a store that may lose what it committed")] = False
    journal: Annotated[bool, _flag("Keep pushes and acks below the data directory while the store is away")] = True
    inflight_bytes_max: Annotated[int, _flag("Of all requests and unread answers together, in each process")] = (
        256 * 1024 * 1024
    )
    """Past it requests are refused before they are read."""
    failed_operations_seconds: Annotated[int, _flag("How long failed operations are kept; 0 for ever")] = 30 * 86_400
    journal_bytes_max: Annotated[int, _flag("Past this the journal refuses with 429")] = 1024**3
    patience_seconds: Annotated[float, _flag("A push or an ack that takes the store longer goes to the journal")] = 2.0
    """A store that does not finish one in this time is away; one that answers nobody, after a quarter."""
    wait_seconds_max: Annotated[float, _flag("Longest wait for a busy store; past it pushes and acks get 202")] = 2.0
    """Those are operations then; while acks are, pops are refused."""
    push_operations_max: Annotated[int, _flag("Waiting operations past which pushes get 429")] = 10_000
    ack_operations_max: Annotated[int, _flag("Waiting operations past which acks get 429")] = 50_000
    encryption_key: str = ""
    """Keys for encrypted queues, each 64 hex digits or 32 bytes in base64; the first one is used for what is new."""
    encryption_key_file: str | None = None
    """A file with such keys."""
    sealed_queues: str = ""
    """Queues that are always encrypted, whatever their options say, by names and beginnings with a `*`, separated by
    commas: a message in clear in one of them is not delivered."""
    jwt_secret: str = ""
    """Tokens (JWT) that are signed with this secret (HS256) are credentials; at least 32 bytes."""
    jwt_public_key: str = ""
    """Those signed with the private half of a key are: PEM, or a file with such keys. RSA (RS256), P-256 (ES256) or
    Ed25519 (EdDSA)."""
    jwt_jwks_url: str = ""
    """Those of an identity provider are, which publishes its keys there; https, or a host of outbound_allow."""
    jwt_issuer: str | None = None
    """The `iss` that tokens must have."""
    jwt_audience: str | None = None
    """The `aud` that tokens must have; without one those that have any are for somebody else."""
    jwt_claims: str = ""
    """Where claims have other names: `role=...,roles=...,scopes=...,tenant=...,sub=...`, as many as differ."""
    retention_interval_seconds: float = 10.0
    """How often what a retention rule covers is deleted; 0 leaves that to other brokers."""


def flags() -> dict[str, str]:
    """The settings that are options of `fairlane serve`, with their help."""
    hints = get_type_hints(Settings, include_extras=True)
    return {name: hint.__metadata__[0].description for name, hint in hints.items() if hasattr(hint, "__metadata__")}


def load_settings(flags: dict[str, Any], config_file: Path | None = None) -> Settings:
    """Settings from everywhere; InvalidRequest names what is wrong and where it was said."""
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
    from fairlane.store.opening import store_url  # only a broker and its tools read settings

    if settings.store == EMBEDDED:
        return settings
    return msgspec.structs.replace(settings, store=store_url(settings.store))


def named_variables(names: Sequence[str], *, allowed: str = SECRET_NAMES) -> list[str]:
    """What environment variables of the broker hold that a spec names for secrets. InvalidRequest if one is not set, or
    is none for specs: who may write one could find out of any other whether it is there, or have it sent away."""
    for name in names:
        if not _may_name(name, allowed):
            raise InvalidRequest(
                f"a spec may not name the environment variable {name:.100}: {_OURS}* and what secret_names allows "
                f"({allowed}) are for that"
            )
        if not os.environ.get(name):
            raise InvalidRequest(
                f"the environment variable {name:.100} is not set where the broker runs, and a spec names it for a "
                "secret; set it there and start the broker again"
            )
    return [os.environ[name] for name in names]


def own_variables(names: Sequence[str]) -> list[str]:
    """The same for a command of whoever sets the environment: anything but the broker's own settings."""
    for name in names:
        if not _may_name(name, "*"):
            raise InvalidRequest(f"{name:.100} is a setting of the broker, and no secret for a spec")
        if not os.environ.get(name):
            raise InvalidRequest(f"the environment variable {name:.100} is not set, and the spec names it for a secret")
    return [os.environ[name] for name in names]


def _may_name(name: str, allowed: str) -> bool:
    if name.upper().startswith("FAIRLANE_"):
        return name.startswith(_OURS)
    return any(fnmatchcase(name, pattern.strip()) for pattern in allowed.split(","))


def handed_on() -> dict[str, str]:
    """The environment of the processes that a broker starts: all but its own settings, some of which are secret and
    which it tells them itself."""
    return {
        name: value for name, value in os.environ.items() if not name.startswith("FAIRLANE_") or name.startswith(_OURS)
    }


def wants_otel(setting: str) -> bool:
    """Whether to make spans, and send them and metrics: as the setting says, or if OTEL_* in the environment name a
    collector or an exporter, as for any other service."""
    if setting not in ("auto", "on", "off"):
        raise InvalidRequest(f"otel is {setting!r:.40}; it must be auto, on or off")
    if setting != "auto" or os.environ.get("OTEL_SDK_DISABLED", "").lower() == "true":
        return setting == "on"
    return any(os.environ.get(name) for name in _OTEL)


def pg_sslmode() -> str:
    """How PostgreSQL is to speak TLS where its URL does not say it."""
    return os.environ.get("PGSSLMODE") or "prefer"


def encryption_key(settings: Settings) -> str:
    """The keys for encrypted queues, from the setting or its file; "" if there are none."""
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
            f"{where}: unknown setting {unknown[0]!r}; known are {', '.join(Settings.__struct_fields__)}"
        )
    try:
        settings = msgspec.convert(values, Settings, strict=False)
    except msgspec.ValidationError as error:
        raise InvalidRequest(f"{where}: {error}") from None
    return {name: getattr(settings, name) for name in values}
