"""What a header says of the body that follows it, and what is answered to one that cannot be understood."""

from __future__ import annotations

import httptools

from fairlane.http.limits import Refused, bad_request
from fairlane.http.message import Response, error_response


def announced(headers: dict[bytes, bytes], version: str) -> tuple[bool, int]:
    """Whether a body comes, and how long it is; 0 if that is not known. Refused if it cannot be told for sure."""
    if b"transfer-encoding" not in headers:
        length = headers.get(b"content-length", b"0")
        if not length.isdigit():
            length = length.strip(b" \t")
            if not length.isdigit():
                raise Refused(bad_request("content-length is not a number"))
        size = int(length)
        return size > 0, size
    if version == "1.0":
        raise Refused(bad_request("HTTP/1.0 has no transfer-encoding"))
    if headers[b"transfer-encoding"].strip(b" \t").lower() != b"chunked":
        raise Refused(error_response(501, "not_implemented", "of transfer-encoding only chunked is understood"))
    return True, 0


def refusal(error: httptools.HttpParserError) -> tuple[Response, bool]:
    """What to answer, and whether to linger. The cause is in a frame of its own here: it knows the one it was raised
    from, and both would know each other."""
    cause = error.__context__
    if isinstance(cause, Refused):
        return cause.response, cause.linger
    return bad_request(f"this is not HTTP/1.1: {error}"), False
