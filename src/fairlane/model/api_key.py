"""The text of an API key: a prefix that scanners for leaked secrets can look for, 256 random bits, and a checksum, by
which a key that was mistyped is told from one that is not good."""

from __future__ import annotations

import hashlib
import re
import zlib
from typing import Final

PREFIX: Final = "fl_"
_KEY: Final = re.compile(rf"{PREFIX}[0-9a-f]{{72}}", re.ASCII)


def text_of(bits: bytes) -> str:
    """The key of 32 random bytes."""
    return f"{PREFIX}{bits.hex()}{zlib.crc32(bits):08x}"


def is_whole(text: str) -> bool:
    """Whether a text is a key as it was made, without a mistake."""
    return bool(_KEY.fullmatch(text)) and text_of(bytes.fromhex(text[len(PREFIX) : -8])) == text


def hash_of(text: str) -> bytes:
    """The form in which a key is stored and looked up. Nobody guesses 256 bits: it need not be slow."""
    return hashlib.sha256(text.encode()).digest()
