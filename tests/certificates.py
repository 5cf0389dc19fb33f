"""Certificates for tests: of an authority that is trusted, of one that is not, and expired ones."""

from __future__ import annotations

import ssl
from datetime import UTC, datetime
from pathlib import Path


class Certificates:
    """Certificate files in a directory: `ca`, the server's `cert` and `key`, `client`, and those of another CA.

    `renew` replaces them under the same names.
    """

    def __init__(self, directory: Path, *names: str) -> None:
        import trustme

        self._directory = directory
        self._names = names or ("127.0.0.1", "localhost")
        self._authority = trustme.CA(key_type=trustme.KeyType.ECDSA)
        self._other = trustme.CA(key_type=trustme.KeyType.ECDSA)
        self.ca, self.other_ca = str(directory / "ca.pem"), str(directory / "other-ca.pem")
        self._authority.cert_pem.write_to_path(self.ca)
        self._other.cert_pem.write_to_path(self.other_ca)
        self.cert, self.key = str(directory / "cert.pem"), str(directory / "key.pem")
        self.renew()
        self.client = self._client("client.pem", self._authority)
        self.other_client = self._client("other-client.pem", self._other)

    def renew(self, *, expired: bool = False) -> int:
        """Write a new certificate of the server. Returns its serial number."""
        from cryptography import x509

        until = datetime(2020, 1, 1, tzinfo=UTC) if expired else None
        issued = self._authority.issue_cert(*self._names, not_after=until)
        Path(self.cert).write_bytes(b"".join(blob.bytes() for blob in issued.cert_chain_pems))
        self._private(self.key, issued.private_key_pem.bytes())
        return x509.load_pem_x509_certificate(issued.cert_chain_pems[0].bytes()).serial_number

    def spoil(self) -> None:
        """Replace the key file with a text that is not a key."""
        self._private(self.key, b"no key")

    def trusting(self, ca: str | None = None, *, client: str | None = None) -> ssl.SSLContext:
        """Return the TLS context of a client that trusts the CA."""
        context = ssl.create_default_context(cafile=ca or self.ca)
        if client is not None:
            context.load_cert_chain(client)
        return context

    def _client(self, name: str, authority: object) -> str:
        path = str(self._directory / name)
        issued = authority.issue_cert("worker@example.com")  # type: ignore[attr-defined]
        self._private(path, issued.private_key_and_cert_chain_pem.bytes())
        return path

    def _private(self, path: str, content: bytes) -> None:
        Path(path).touch(mode=0o600)
        Path(path).write_bytes(content)
