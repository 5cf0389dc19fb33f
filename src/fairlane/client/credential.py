"""The credential of a client: an API key or token.

It is given as an argument or read from FAIRLANE_KEY or from the file FAIRLANE_KEY_FILE, which is read again when it
changes. Without TLS it is only sent to this machine, unless `insecure` is set.
"""

from __future__ import annotations

import ipaddress
import os
from pathlib import Path
from time import monotonic

from fairlane.errors import InvalidRequest

RELOAD_SECONDS = 1.0
"""Seconds between checks of the key file."""


class Credential:
    def __init__(self, token: str | None = None, *, insecure: bool | None = None) -> None:
        """Read missing values from the environment."""
        self._file: Path | None = None
        self._seen: tuple[int, int, int] | None = None
        self._reload_at = 0.0
        self.insecure = os.environ.get("FAIRLANE_INSECURE", "") not in ("", "0") if insecure is None else insecure
        self._line = ""
        if token is None:
            token = os.environ.get("FAIRLANE_KEY") or None
        if token is None and (file := os.environ.get("FAIRLANE_KEY_FILE")):
            self._file = Path(file)
            self._read()
        elif token is not None:
            self._use(token, "the key or token")

    @property
    def is_set(self) -> bool:
        return bool(self._line)

    def line(self) -> str:
        """Return the Authorization header line, or an empty string without a credential."""
        if self._file is not None and monotonic() >= self._reload_at:
            self._read()
        return self._line

    def check(self, host: str, *, tls: bool) -> None:
        """Raise InvalidRequest if the credential would be sent to another machine without TLS."""
        if self.is_set and not (tls or self.insecure or _is_loopback(host)):
            raise InvalidRequest(
                f"the key would be sent unencrypted to {host}; use https, or set insecure=True (--insecure on the "
                "command line) if nobody else can listen"
            )

    def _read(self) -> None:
        assert self._file is not None
        self._reload_at = monotonic() + RELOAD_SECONDS
        try:
            found = self._file.stat()
            seen = (found.st_mtime_ns, found.st_size, found.st_ino)
            if seen != self._seen:
                self._use(self._file.read_text(encoding="utf-8").strip(), f"the key in {self._file}")
                self._seen = seen
        except (OSError, UnicodeDecodeError) as error:
            if not self._line:  # a file that is being replaced is back soon
                raise InvalidRequest(f"cannot read the key in {self._file}: {error}") from None

    def _use(self, token: str, what: str) -> None:
        if not token or not (token.isascii() and token.isprintable()):
            raise InvalidRequest(f"{what} is not made of printable ASCII characters")
        self._line = f"Authorization: Bearer {token}\r\n"


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")
