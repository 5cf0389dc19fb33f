"""The keyring: the operator's keys. They wrap data keys, and never seal messages themselves."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import os
import re
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from fairlane.errors import InvalidRequest, SealError

KEY_BYTES: Final = 32
NONCE_BYTES: Final = 12
LOCAL_USES: Final = 2**30
_SALT_BYTES: Final = 16
_SALTS_MAX: Final = 1000
_SEPARATORS = re.compile(r"[\s,]+")


class Cipher:
    """AES-256-GCM with one key. Sealed bytes are a fresh nonce, the ciphertext and the tag."""

    def __init__(self, key: bytes) -> None:
        self._aead = AESGCM(key)

    def seal(self, data: bytes, context: bytes) -> bytes:
        nonce = os.urandom(NONCE_BYTES)
        return nonce + self._aead.encrypt(nonce, data, context)

    def open(self, sealed: bytes, context: bytes) -> bytes:
        """Decrypt bytes. Raises SealError unless this key sealed them in this context."""
        try:
            return self._aead.decrypt(sealed[:NONCE_BYTES], sealed[NONCE_BYTES:], context)
        except (InvalidTag, ValueError):
            raise SealError("sealed bytes were changed or moved, or another key sealed them") from None


class Keyring:
    """The operator's keys, by their digests. The first one wraps, and all of them unwrap.

    To rotate without a pause, add the new key after the old one at every broker, then put it first, then remove the old
    one.
    """

    def __init__(self, keys: Sequence[bytes]) -> None:
        for key in keys:
            if len(key) != KEY_BYTES or len(set(key)) < 8:
                raise InvalidRequest(f"an encryption key is {KEY_BYTES} random bytes; this one is not")
        if not keys:
            raise InvalidRequest("a keyring needs a key")
        self._keys = list(keys)
        self._ciphers = {_name(key): Cipher(key) for key in keys}
        self.active = _name(keys[0])

    @classmethod
    def parse(cls, text: str) -> Keyring:
        """Parse keys of 64 hex digits or base64, separated by blanks or commas."""
        return cls([_key(word) for word in _SEPARATORS.split(text) if word])

    def wrap(self, key: bytes, context: bytes) -> bytes:
        return self._ciphers[self.active].seal(key, context)

    def unwrap(self, kek: str, wrapped: bytes, context: bytes) -> bytes:
        cipher = self._ciphers.get(kek)
        if cipher is None:
            raise SealError(f"this broker lacks the encryption key {kek}, which wraps the key of these messages")
        return cipher.open(wrapped, context)

    def local(self) -> LocalSeal:
        """Return a seal for data outside the store, such as a journal, which needs no data key."""
        return LocalSeal(self._keys)


class LocalSeal:
    """A key for one file or process, derived from the operator's key by a random salt.

    The salt precedes all sealed data. Few messages share such a key, so random nonces are safe, and the operator's key
    is enough to open the file anywhere.
    """

    def __init__(self, keys: Sequence[bytes]) -> None:
        self._keys = keys
        self._salt = os.urandom(_SALT_BYTES)
        self._cipher = Cipher(_derived(keys[0], self._salt))
        self._uses = 0
        self._met: dict[bytes, list[Cipher]] = {}

    def seal(self, data: bytes, context: bytes) -> bytes:
        self._uses += 1
        if self._uses > LOCAL_USES:
            self._salt, self._uses = os.urandom(_SALT_BYTES), 1
            self._cipher = Cipher(_derived(self._keys[0], self._salt))
        return self._salt + self._cipher.seal(data, context)

    def open(self, sealed: bytes, context: bytes) -> bytes:
        """Decrypt bytes. Raises SealError unless one of the operator's keys sealed them in this context."""
        salt, sealed = sealed[:_SALT_BYTES], sealed[_SALT_BYTES:]
        if salt not in self._met:
            if len(self._met) >= _SALTS_MAX:
                self._met.clear()
            self._met[salt] = [Cipher(_derived(key, salt)) for key in self._keys]
        *others, last = self._met[salt]
        for cipher in others:
            with suppress(SealError):  # another key sealed it
                return cipher.open(sealed, context)
        return last.open(sealed, context)


def _derived(key: bytes, salt: bytes) -> bytes:
    return hmac.digest(key, b"fairlane local" + salt, "sha256")


def _name(key: bytes) -> str:
    return hashlib.sha256(b"fairlane key" + key).hexdigest()[:16]


def _key(word: str) -> bytes:
    try:
        if len(word) == 2 * KEY_BYTES:
            return bytes.fromhex(word)
        return base64.b64decode(word, validate=True)
    except (ValueError, binascii.Error):
        raise InvalidRequest("an encryption key is written as 64 hex digits, or 32 bytes in base64") from None
