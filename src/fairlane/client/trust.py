"""Trust of a client in its servers: the authority that signed their certificates, and a certificate of its own."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple

from fairlane.errors import InvalidRequest

if TYPE_CHECKING:
    from ssl import SSLContext


class Trust(NamedTuple):
    """PEM files. Without `ca_file` those authorities are trusted that the system trusts; `cert_file` has the client's
    certificate with its key, for a broker that asks for one."""

    ca_file: str | None = None
    cert_file: str | None = None

    @classmethod
    def given(cls, ca_file: str | None, cert_file: str | None) -> Trust:
        """These files, or where there is none what FAIRLANE_CA_FILE and FAIRLANE_CERT_FILE name."""
        return cls(
            ca_file or os.environ.get("FAIRLANE_CA_FILE") or None,
            cert_file or os.environ.get("FAIRLANE_CERT_FILE") or None,
        )

    def context(self) -> SSLContext:
        """InvalidRequest if a file cannot be used."""
        import ssl

        named = self.ca_file
        try:
            context = ssl.create_default_context(cafile=self.ca_file)
            named = self.cert_file
            if self.cert_file is not None:
                context.load_cert_chain(self.cert_file, password="")  # nobody is asked for one
        except (OSError, ValueError) as error:
            reason = getattr(error, "reason", None) or getattr(error, "strerror", None) or error
            raise InvalidRequest(f"cannot use the certificate in {named}: {reason}") from None
        return context
