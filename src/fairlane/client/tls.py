"""TLS options of a client: the CA that it trusts, and its own certificate."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple

from fairlane.errors import InvalidRequest

if TYPE_CHECKING:
    from ssl import SSLContext


class TlsOptions(NamedTuple):
    """Paths of PEM files.

    Without `ca_file` the client trusts the system's CAs. `cert_file` has the client's certificate and key, for a broker
    that requires one.
    """

    ca_file: str | None = None
    cert_file: str | None = None

    @classmethod
    def from_environment(cls, ca_file: str | None, cert_file: str | None) -> TlsOptions:
        """Return the options for the given files, or for those that FAIRLANE_CA_FILE and FAIRLANE_CERT_FILE name."""
        return cls(
            ca_file or os.environ.get("FAIRLANE_CA_FILE") or None,
            cert_file or os.environ.get("FAIRLANE_CERT_FILE") or None,
        )

    def context(self) -> SSLContext:
        """Return an SSL context. Raises InvalidRequest if a file cannot be used."""
        import ssl

        named = self.ca_file
        try:
            context = ssl.create_default_context(cafile=self.ca_file)
            named = self.cert_file
            if self.cert_file is not None:
                context.load_cert_chain(self.cert_file, password="")  # never prompt for a password
        except (OSError, ValueError) as error:
            reason = getattr(error, "reason", None) or getattr(error, "strerror", None) or error
            raise InvalidRequest(f"cannot use the certificate in {named}: {reason}") from None
        return context
