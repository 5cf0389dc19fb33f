"""The text of an API key: a prefix, 256 random bits and a checksum.

Scanners for leaked secrets look for the prefix. The checksum tells a mistyped key from an unknown one.
"""

from __future__ import annotations

import hashlib
import re
import zlib
from typing import Final

PREFIX: Final = "fl_"
_KEY: Final = re.compile(rf"{PREFIX}[0-9a-f]{{72}}", re.ASCII)


def text_of(bits: bytes) -> str:
    """Return the key for 32 random bytes."""
    return f"{PREFIX}{bits.hex()}{zlib.crc32(bits):08x}"


def is_whole(text: str) -> bool:
    """Return True if a text has the form and the checksum of a key."""
    return bool(_KEY.fullmatch(text)) and text_of(bytes.fromhex(text[len(PREFIX) : -8])) == text


def hash_of(text: str) -> bytes:
    """Return the hash by which a key is stored and looked up. A fast hash will do: 256 bits cannot be guessed."""
    return hashlib.sha256(text.encode()).digest()
