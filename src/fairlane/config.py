"""Settings of the broker process: flags, `FAIRLANE_*` in the environment, an optional TOML file, in this order of
weight."""

from __future__ import annotations

import logging
import os
import tomllib
from collections.abc import Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Literal

import msgspec

from fairlane.errors import InvalidRequest
from fairlane.model.limits import POLLS_MAX
from fairlane.runtime.private_file import warning_of

SECRET_NAMES = "*SECRET*"  # noqa: S105
_OURS = "FAIRLANE_SECRET_"

log = logging.getLogger("fairlane")


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    store: str = "sqlite:///fairlane.db"
    host: str = "127.0.0.1"
    port: int = 6632
    workers: int = 1
    log_format: Literal["text", "json"] = "text"
    data_dir: str = "fairlane-data"
    listen_url: str | None = None
    """PostgreSQL itself, when `store` leads to a pooler."""
    statement_cache: bool = True
    """Off for a pooler that cannot keep prepared statements."""
    allowed_hosts: str = ""
    """Names and addresses under which clients ask for this broker, beside those of loopback and where it listens,
    separated by commas; `*` for any."""
    cors_origin: str | None = None
    secret_names: str = SECRET_NAMES
    """Environment variables that specs may name for secrets, separated by commas; `*` stands for any text."""
    outbound_allow: str = ""
    """Hosts, addresses and networks that commands may call and pollers read although they are not public, separated by
    commas."""
    pollers: bool = True
    """Read what the pollers of applied specs declare; off leaves that to other brokers and to `fairlane poll`."""
    connections_max: int = 10_000
    """Of clients, in each process."""
    polls_max: int = POLLS_MAX
    """Long polls that wait at once, in each process: fewer than connections, so that pushes and acks find one."""
    allow_unsafe: bool = False
    encryption_key: str = ""
    """Keys for encrypted queues, each 64 hex digits or 32 bytes in base64; the first one is used for what is new."""
    encryption_key_file: str | None = None
    """A file with such keys."""
    retention_interval_seconds: float = 10.0
    """How often what a retention rule covers is deleted; 0 leaves that to other brokers."""
    failed_operations_seconds: int = 30 * 86_400
    """How long operations are kept that failed, for somebody to decide; 0 keeps them for ever."""
    inflight_bytes_max: int = 256 * 1024 * 1024
    """Of all requests together and all answers that wait to be read, in each process; past it requests are refused
    before they are read."""
    journal: bool = True
    """Keep pushes and acks below `data_dir` while the store does not answer."""
    journal_bytes_max: int = 1024**3
    patience_seconds: float = 2.0
    """A store that does not finish a push or an ack in this time is away; one that answers nobody, after a quarter."""
    wait_seconds_max: float = 2.0
    """A push or ack that would wait longer for the store is kept as an operation; while acks are, pops are refused."""
    push_operations_max: int = 10_000
    """How many operations may wait, past which pushes are refused."""
    ack_operations_max: int = 50_000


def load_settings(flags: dict[str, Any], config_file: Path | None = None) -> Settings:
    """Settings from everywhere; InvalidRequest names what is wrong and where it was said."""
    values: dict[str, Any] = {}
    if config_file is not None:
        values |= _checked(_read(config_file), str(config_file))
    for name in Settings.__struct_fields__:
        given = os.environ.get(f"FAIRLANE_{name.upper()}")
        if given is not None:
            values |= _checked({name: given}, f"FAIRLANE_{name.upper()}")
    return Settings(**values | {name: value for name, value in flags.items() if value is not None})


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


def encryption_key(settings: Settings) -> str:
    """The keys for encrypted queues, from the setting or its file; "" if there are none."""
    if settings.encryption_key_file is None:
        return settings.encryption_key
    if warning := warning_of(settings.encryption_key_file):
        log.warning("%s", warning)
    try:
        return Path(settings.encryption_key_file).read_text(encoding="ascii")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidRequest(f"cannot read the encryption keys in {settings.encryption_key_file}: {error}") from None


def _read(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InvalidRequest(f"cannot read {path}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InvalidRequest(f"{path} is not TOML: {error}") from None


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
