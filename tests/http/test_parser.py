"""The server's parser compared with h11: both parse the same requests from the same bytes, or both refuse them.

Intended differences are listed here with the reason.
"""

from __future__ import annotations

import re
from ast import literal_eval
from collections.abc import Iterable
from itertools import pairwise
from types import SimpleNamespace
from typing import Any, NamedTuple

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from fairlane.http.server import Limits, Request, Response
from fairlane.http.server.connection import Connection
from fairlane.http.server.parser import KnownHeaders, Parser
from fairlane.runtime.memory import ByteBudget
from tests.http.raw_requests import CORPUS, GET, POST, made, mutations

STRICTER = {
    r"Invalid method|Expected space after method": "only methods that are registered for HTTP: no route has another",
    r"in url|in url schema": "a target is a path, an absolute URL or an asterisk",
    r"Invalid HTTP version|Connection Preface|this is HTTP/\d\.\d|Pause on PRI": (
        "HTTP/1.1 and HTTP/1.0 are spoken, h11 takes any version"
    ),
    r"Expected CRLF|Missing expected CR|Invalid header field char": (
        "a line ends with CR LF: of two that disagree whether LF ends one, the second reads another request"
    ),
    r"Unexpected whitespace after header value": "no folded headers: RFC 9112 5.2 has a server refuse or undo them",
    r"Invalid header value char": "no control characters in a header's value, as RFC 9110 5.5 has it, nor a fold",
    r"Duplicate Content-Length|Invalid character in Content-Length": "one length, also where the second says the same",
    r"can't be present with": "no length beside chunks: RFC 9112 6.3 calls that an attempt to smuggle",
    r"[Ii]nvalid `Transfer-Encoding`": "nothing behind `chunked`, not even a tab, and no encoding in a trailer",
    r"HTTP/1.0 has no transfer-encoding": "RFC 9112 6.1 has a server take such a message's framing for faulty",
    r"the header host is missing": "also of HTTP/1.0: by their host requests of foreign pages are told",
    r"overflow": "more than 64 bits can count; h11 waits for all of it",
    r"Invalid .+ in chunk|Expected LF after chunk size": (
        "extensions of chunks by the grammar, and no blank behind a size: h11 skips what it does not understand"
    ),
    r"does not upgrade connections": "no tunnels, and no body that may belong to another protocol",
}
"""Intended differences, by the message of our refusal."""

LAXER = {
    r"no request line received|illegal request line(: \r+)?$": "blank lines before it are skipped (RFC 9112 2.2)",
    r"illegal request line: \r*[A-Z-]+ +[!-~]+ +(HTTP|RTSP|ICE)/1\.[01]$": (
        "several blanks are as good as one, as RFC 9112 3 allows, so is CR before a method, and so are, for llhttp, the"
        " names of other protocols: where a request ends does not depend on them"
    ),
    r"illegal chunk header: 0[0-9a-fA-F]{20,}(;|\r)": "a chunk's size may begin with any number of zeros",
}
"""Intended differences, by the message of h11's refusal."""

KEPT_1_0 = re.compile(rb"HTTP/1\.0\r\n(.+\r\n)*connection:.*keep-alive", re.IGNORECASE)
"""Another intended difference: HTTP/1.0 clients may keep the connection open, as old tools do. h11 never allows it."""


class Read(NamedTuple):
    """A parsed request."""

    method: bytes
    target: bytes
    headers: dict[bytes, bytes]
    body: bytes


class Outcome(NamedTuple):
    requests: list[Read]
    end: str
    """The result of parsing: idle, waits (for more), ended (the client stopped too early), or refused."""
    error: str = ""


def read(method: bytes, target: bytes, headers: Iterable[tuple[bytes, bytes]], body: bytes) -> Read:
    """In one form: the headers of one name are a list, the only transfer encoding has no large letters, and an empty
    query is none."""
    found: dict[bytes, bytes] = {}
    for name, value in headers:
        found[name] = found[name] + b", " + value if name in found else value
    if b"transfer-encoding" in found:
        found[b"transfer-encoding"] = found[b"transfer-encoding"].lower()
    path, _, query = target.partition(b"?")
    return Read(method, path + b"?" + query if query else path, found, body)


class Requests(Connection):
    """Collects every request that a connection parses."""

    def __init__(self, known: KnownHeaders) -> None:
        server: Any = SimpleNamespace(
            limits=Limits(), budget=ByteBudget(0), loop=SimpleNamespace(time=lambda: 0.0), known_headers=known
        )
        super().__init__(server, server)
        self.whole: list[Read] = []
        self.error: str | None = None

    def begin(self, request: Request, length: int | None, received: int = 0) -> None:
        pass

    def grow(self, request: Request, size: int, more: int) -> None:
        pass

    def may_continue(self) -> None:
        pass

    def complete(self, request: Request) -> None:
        target = request.path + b"?" + request.query_string
        self.whole.append(read(request.method.encode(), target, request.headers.items(), request.body))

    def _send_last(self, response: Response, linger: bool) -> None:
        self.error = msgspec.json.decode(response.body)["error"]


def by_ours(pieces: Iterable[bytes], known: KnownHeaders | None = None) -> Outcome:
    found = Requests({} if known is None else known)
    for piece in pieces:
        found.data_received(piece)
        if found.error is not None:
            return Outcome(found.whole, "refused", found.error)
    parser = found._parser
    waits = parser is not None and (parser.in_head or parser.in_body)
    return Outcome(found.whole, "ended" if found.ended else "waits" if waits else "idle")


def unquoted(error: str) -> str:
    """Remove the quoted line from an error message."""
    said, _, line = error.partition(": bytearray(")
    return f"{said}: {literal_eval(line[:-1]).decode('latin-1')}" if error.startswith("illegal ") and line else error


def by_h11(pieces: Iterable[bytes]) -> Outcome:
    import h11

    connection = h11.Connection(h11.SERVER)
    whole: list[Read] = []
    begun, body = h11.Request(method="GET", target="/", headers=[("host", "")]), b""
    for piece in pieces:
        connection.receive_data(piece)
        while True:
            try:
                event = connection.next_event()
            except h11.RemoteProtocolError as error:
                return Outcome(whole, "refused", unquoted(str(error)))
            if event is h11.NEED_DATA:
                break
            if isinstance(event, h11.Request):
                begun, body = event, b""
            elif isinstance(event, h11.Data):
                body += bytes(event.data)
            elif isinstance(event, h11.EndOfMessage):
                whole.append(read(begun.method, begun.target, begun.headers, body))
                # Answered as if it had asked for no upgrade, which is allowed.
                connection.send(h11.Response(status_code=400, headers=[("content-length", "0")]))
                connection.send(h11.EndOfMessage())
                if connection.our_state is h11.MUST_CLOSE:
                    return Outcome(whole, "ended")
                connection.start_next_cycle()
    waits = connection.their_state is not h11.IDLE or connection.trailing_data[0]
    return Outcome(whole, "waits" if waits else "idle")


def meant(raw: bytes, ours: Outcome, theirs: Outcome) -> str | None:
    """Return the pattern of the list above that explains the difference, or None."""
    fewer = min(len(ours.requests), len(theirs.requests))
    if ours.requests[:fewer] != theirs.requests[:fewer]:
        return None
    if theirs.end == "ended" and len(theirs.requests) == fewer and KEPT_1_0.search(raw):
        return KEPT_1_0.pattern.decode()
    if ours.end == "refused" and len(ours.requests) == fewer:
        for pattern in STRICTER:
            if re.search(pattern, ours.error):
                return pattern
    if theirs.end == "refused" and len(theirs.requests) == fewer:
        for pattern in LAXER:
            if re.search(pattern, theirs.error):
                return pattern
    return None


def agree(one: Outcome, other: Outcome) -> bool:
    return one.requests == other.requests and (one.end == "refused") == (other.end == "refused")


def compare(raw: bytes) -> str:
    """Return the reason for an intended difference, or nothing. Fails on any other."""
    ours, theirs = by_ours([raw]), by_h11([raw])
    if agree(ours, theirs):
        return ""
    # One checks each byte and the other whole lines, so an undecided parser gets the end of its line.
    if ours.end == "waits":
        ours = by_ours([raw, b"\r\n\r\n"])
    if theirs.end == "waits":
        theirs = by_h11([raw, b"\r\n\r\n"])
    if agree(ours, theirs):
        return ""
    reason = meant(raw, ours, theirs)
    assert reason is not None, f"{raw!r}\n  ours {ours}\n  h11  {theirs}"
    return reason


@pytest.mark.parametrize("name", CORPUS)
def test_the_corpus_is_read_as_h11_reads_it(name: str) -> None:
    compare(CORPUS[name])


def test_every_difference_that_is_listed_is_there() -> None:
    assert {compare(raw) for raw in CORPUS.values()} == {"", *STRICTER, *LAXER, KEPT_1_0.pattern.decode()}


@settings(max_examples=1000, deadline=None)
@given(mutations())
def test_changed_requests_are_read_as_h11_reads_them(raw: bytes) -> None:
    compare(raw)


@settings(max_examples=300, deadline=None)
@given(made())
def test_requests_made_of_parts_are_read_as_h11_reads_them(raw: bytes) -> None:
    compare(raw)


@pytest.mark.parametrize("name", CORPUS)
def test_where_what_came_is_cut_makes_no_difference(name: str) -> None:
    raw, known = CORPUS[name], KnownHeaders()
    whole = by_ours([raw])
    cuts = [[raw], [raw[at : at + 1] for at in range(len(raw))], *([raw[:at], raw[at:]] for at in range(1, len(raw)))]
    for pieces in cuts + cuts:  # the second time with headers that are cached
        assert agree(by_ours(pieces, known), whole), pieces


_known: KnownHeaders = {}
"""Cache shared by all examples, as a server shares it among its clients."""


@settings(max_examples=500, deadline=None)
@given(st.lists(st.one_of(mutations(), st.sampled_from(list(CORPUS.values()))), min_size=1, max_size=3), st.data())
def test_known_headers_make_no_difference(raws: list[bytes], data: st.DataObject) -> None:
    raw = b"".join(raws)
    at = sorted(data.draw(st.sets(st.integers(0, len(raw)), max_size=3)))
    ends = [0, *data.draw(st.sampled_from([at, [len(one) for one in raws[:1]], []])), len(raw)]
    pieces = [raw[a:b] for a, b in pairwise(ends)]
    whole = by_ours([raw])
    for _ in range(2):
        assert agree(by_ours(pieces, _known), whole), pieces


def test_a_header_is_parsed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    known: KnownHeaders = {}
    first = by_ours([GET, POST], known)
    assert len(known) == 2
    monkeypatch.setattr(Parser, "_parse", None)
    assert by_ours([GET, POST], known) == first


@settings(deadline=None)
@example(GET * 3)
@example(GET + b"G")
@example(b"\r\n\r\n" + POST)
@given(mutations())
def test_a_known_header_ends_where_its_body_begins(raw: bytes) -> None:
    known: KnownHeaders = {}
    by_ours([raw], known)
    for head, header in known.items():
        assert head.endswith(b"\r\n\r\n")
        assert head.count(b"\r\n\r\n") == 1
        assert len(raw) == len(head) + header.length
