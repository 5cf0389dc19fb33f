"""A corpus of raw requests that clients send, must not send, or send to smuggle, and ways to mutate them."""

from __future__ import annotations

from hypothesis import strategies as st

GET = b"GET /a HTTP/1.1\r\nHost: x\r\n\r\n"
POST = b"POST /a?b=c HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhello"
CHUNKED = b"POST /a HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhe\r\n3\r\nllo\r\n0\r\n\r\n"


def get(*lines: bytes, line: bytes = b"GET / HTTP/1.1") -> bytes:
    return b"".join(one + b"\r\n" for one in (line, b"Host: x", *lines)) + b"\r\n"


def post(*lines: bytes, body: bytes = b"", line: bytes = b"POST / HTTP/1.1") -> bytes:
    return get(*lines, line=line) + body


def chunked(body: bytes, *lines: bytes) -> bytes:
    return post(b"Transfer-Encoding: chunked", *lines, body=body)


CORPUS: dict[str, bytes] = {
    "get": GET,
    "post": POST,
    "chunked": CHUNKED,
    "pipelined": GET + POST + CHUNKED + GET,
    "blank lines between": GET + b"\r\n\r\n" + GET,
    "blank line before": b"\r\n" + GET,
    "last": get(b"Connection: close") + GET,
    # Targets and methods.
    "query": get(line=b"GET /a/%2f?x=%20&y=;z#f HTTP/1.1"),
    "absolute": get(line=b"GET http://x/a?b HTTP/1.1"),
    "asterisk": get(line=b"OPTIONS * HTTP/1.1"),
    "no slash": get(line=b"GET a HTTP/1.1"),
    "odd target": get(line=b'GET /"<>\\^`{|}~ HTTP/1.1'),
    "high target": get(line=b"GET /\xc3\xa4 HTTP/1.1"),
    "blank in target": get(line=b"GET /a b HTTP/1.1"),
    "two blanks": get(line=b"GET  / HTTP/1.1"),
    "tab": get(line=b"GET\t/ HTTP/1.1"),
    "no target": get(line=b"GET HTTP/1.1"),
    "unknown method": get(line=b"BREW /pot HTTP/1.1"),
    "small method": get(line=b"get / HTTP/1.1"),
    "head": get(line=b"HEAD / HTTP/1.1"),
    "connect": get(line=b"CONNECT x:1 HTTP/1.1"),
    "method of another protocol": get(line=b"DESCRIBE / HTTP/1.1"),
    "another protocol": get(line=b"GET / RTSP/1.1"),
    "not quite a method": get(line=b"GETT / HTTP/1.1"),
    "odd scheme": get(line=b"GET httpx//x/a HTTP/1.1"),
    "odd start of a target": get(line=b"GET ,a HTTP/1.1"),
    # Versions.
    "1.0": get(line=b"GET / HTTP/1.0"),
    "1.0 kept": get(b"Connection: keep-alive", line=b"GET / HTTP/1.0") + GET,
    "1.0 with length": post(b"Content-Length: 2", body=b"hi", line=b"POST / HTTP/1.0"),
    "1.0 without host": b"GET / HTTP/1.0\r\n\r\n",
    "1.0 chunked": post(b"Transfer-Encoding: chunked", body=b"2\r\nhi\r\n0\r\n\r\n", line=b"POST / HTTP/1.0"),
    "0.9": b"GET /\r\n\r\n",
    "1.2": get(line=b"GET / HTTP/1.2"),
    "9.1": get(line=b"GET / HTTP/9.1"),
    "2.0": get(line=b"GET / HTTP/2.0"),
    "1.10": get(line=b"GET / HTTP/1.10"),
    "small version": get(line=b"GET / http/1.1"),
    "preface": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    # Line ends.
    "line feeds": GET.replace(b"\r\n", b"\n"),
    "line feed at the end": b"GET / HTTP/1.1\r\nHost: x\r\n\n",
    "line feed in between": b"GET / HTTP/1.1\r\nHost: x\nA: b\r\n\r\n",
    "carriage returns": GET.replace(b"\r\n", b"\r"),
    "carriage return in a value": get(b"A: b\rC: d"),
    "two carriage returns": b"GET / HTTP/1.1\r\r\nHost: x\r\n\r\n",
    # Headers.
    "no host": b"GET / HTTP/1.1\r\nA: b\r\n\r\n",
    "two hosts": get(b"Host: y"),
    "empty host": b"GET / HTTP/1.1\r\nHost:\r\n\r\n",
    "empty value": get(b"A:", b"B: ", b"C:\t"),
    "blanks around a value": get(b"A: \t b c \t "),
    "the same name": get(b"A: b", b"a: c", b"A: d"),
    "blank before colon": get(b"A : b"),
    "blank before the length": post(b"Content-Length : 5", body=b"hello"),
    "blank before a name": b"GET / HTTP/1.1\r\n Host: x\r\n\r\n",
    "no name": get(b": b"),
    "no colon": get(b"A"),
    "odd name": get(b"A(b): c"),
    "token name": get(b"!#$%&'*+-.^_`|~09: c"),
    "high name": get(b"\xc3\xa4: c"),
    "high value": get(b"A: \xc3\xa4\xff"),
    "control in value": get(b"A: b\x01c"),
    "nul in value": get(b"A: b\0c"),
    "delete in value": get(b"A: b\x7fc"),
    "tab in value": get(b"A: b\tc"),
    "folded": get(b"A: b", b" c"),
    "folded length": post(b"Content-Length:", b" 5", body=b"hello"),
    "folded encoding": post(b"Transfer-Encoding:", b"\tchunked", body=b"0\r\n\r\n"),
    "upgrade": get(b"Connection: upgrade", b"Upgrade: websocket") + GET,
    "upgrade of 1.0": get(b"Connection: upgrade", b"Upgrade: h2c", line=b"GET / HTTP/1.0") + GET,
    "upgrade with body": post(b"Connection: upgrade", b"Upgrade: h2c", b"Content-Length: 2", body=b"hi"),
    "expect": post(b"Expect: 100-continue", b"Content-Length: 2", body=b"hi"),
    "other expectation": post(b"Expect: rain", b"Content-Length: 2", body=b"hi"),
    "keep-alive and close": get(b"Connection: keep-alive, close") + GET,
    # Lengths.
    "zero": post(b"Content-Length: 0") + GET,
    "zeros before": post(b"Content-Length: 005", body=b"hello"),
    "plus": post(b"Content-Length: +5", body=b"hello"),
    "minus": post(b"Content-Length: -5", body=b"hello"),
    "hexadecimal": post(b"Content-Length: 0x5", body=b"hello"),
    "underscore": post(b"Content-Length: 1_0", body=b"hellohello"),
    "blank in length": post(b"Content-Length: 1 0", body=b"hellohello"),
    "blanks around the length": post(b"Content-Length: \t 5 \t ", body=b"hello"),
    "empty length": post(b"Content-Length:", body=b""),
    "long length": post(b"Content-Length: 99999999999999999999", body=b"hello"),
    "longest length": post(b"Content-Length: " + b"9" * 30, body=b"hello"),
    "length of many digits": post(b"Content-Length: " + b"0" * 20 + b"5", body=b"hello"),
    "length twice": post(b"Content-Length: 5", b"Content-Length: 5", body=b"hello"),
    "two lengths": post(b"Content-Length: 5", b"Content-Length: 6", body=b"hello!"),
    "length in a list": post(b"Content-Length: 5, 5", body=b"hello"),
    "two lengths in a list": post(b"Content-Length: 5, 6", body=b"hello!"),
    "short body": post(b"Content-Length: 6", body=b"hello"),
    "long body": post(b"Content-Length: 4", body=b"hello"),
    "length of a get": get(b"Content-Length: 2") + b"hi" + GET,
    "body without length": post(body=b"hello"),
    # Transfer encodings.
    "chunks and length": chunked(b"2\r\nhi\r\n0\r\n\r\n", b"Content-Length: 2"),
    "length and chunks": post(b"Content-Length: 2", b"Transfer-Encoding: chunked", body=b"2\r\nhi\r\n0\r\n\r\n"),
    "chunked twice": chunked(b"2\r\nhi\r\n0\r\n\r\n", b"Transfer-Encoding: chunked"),
    "chunked in a list": post(b"Transfer-Encoding: chunked, chunked", body=b"0\r\n\r\n"),
    "gzip": post(b"Transfer-Encoding: gzip", body=b"0\r\n\r\n"),
    "gzip and chunked": post(b"Transfer-Encoding: gzip, chunked", body=b"0\r\n\r\n"),
    "chunked and gzip": post(b"Transfer-Encoding: chunked, gzip", body=b"0\r\n\r\n"),
    "identity": post(b"Transfer-Encoding: identity", body=b"0\r\n\r\n"),
    "identity and length": post(b"Transfer-Encoding: identity", b"Content-Length: 5", body=b"hello"),
    "empty encoding": post(b"Transfer-Encoding:", body=b"0\r\n\r\n"),
    "large encoding": post(b"Transfer-Encoding: CHUNKED", body=b"0\r\n\r\n"),
    "xchunked": post(b"Transfer-Encoding: xchunked", body=b"0\r\n\r\n"),
    "quoted encoding": post(b'Transfer-Encoding: "chunked"', body=b"0\r\n\r\n"),
    "encoding with a tab": post(b"Transfer-Encoding:\tchunked\t", body=b"0\r\n\r\n"),
    "encoding with a comma": post(b"Transfer-Encoding: chunked,", body=b"0\r\n\r\n"),
    "encoding with a parameter": post(b"Transfer-Encoding: chunked;a=b", body=b"0\r\n\r\n"),
    "blank before the encoding's colon": post(b"Transfer-Encoding : chunked", body=b"0\r\n\r\n"),
    "get with chunks": get(b"Transfer-Encoding: chunked") + b"2\r\nhi\r\n0\r\n\r\n" + GET,
    # Chunks.
    "no chunk": chunked(b"0\r\n\r\n") + GET,
    "large hexadecimal": chunked(b"A\r\n0123456789\r\n0\r\n\r\n"),
    "small hexadecimal": chunked(b"a\r\n0123456789\r\n0\r\n\r\n"),
    "zeros before a chunk": chunked(b"0002\r\nhi\r\n000\r\n\r\n"),
    "extension": chunked(b"2;a=b\r\nhi\r\n0;c\r\n\r\n"),
    "quoted extension": chunked(b'2;a="b;c"\r\nhi\r\n0\r\n\r\n'),
    "empty extension": chunked(b"2;\r\nhi\r\n0\r\n\r\n"),
    "blank before extension": chunked(b"2 ;a=b\r\nhi\r\n0\r\n\r\n"),
    "blank behind a size": chunked(b"2 \r\nhi\r\n0\r\n\r\n"),
    "blank before a size": chunked(b" 2\r\nhi\r\n0\r\n\r\n"),
    "tab behind a size": chunked(b"2\t\r\nhi\r\n0\r\n\r\n"),
    "line feed in extension": chunked(b"2;a\nb\r\nhi\r\n0\r\n\r\n"),
    "carriage return in extension": chunked(b"2;a\rb\r\nhi\r\n0\r\n\r\n"),
    "control in extension": chunked(b"2;a=\x01\r\nhi\r\n0\r\n\r\n"),
    "high extension": chunked(b"2;a=\xff\r\nhi\r\n0\r\n\r\n"),
    "0x": chunked(b"0x2\r\nhi\r\n0\r\n\r\n"),
    "negative chunk": chunked(b"-2\r\nhi\r\n0\r\n\r\n"),
    "plus chunk": chunked(b"+2\r\nhi\r\n0\r\n\r\n"),
    "no size": chunked(b"\r\nhi\r\n0\r\n\r\n"),
    "endless size": chunked(b"f" * 17 + b"\r\nhi\r\n0\r\n\r\n"),
    "size of twenty digits": chunked(b"0" * 19 + b"2\r\nhi\r\n0\r\n\r\n"),
    "size of many digits": chunked(b"0" * 20 + b"2\r\nhi\r\n0\r\n\r\n"),
    "line feeds in chunks": chunked(b"2\nhi\n0\n\n"),
    "line feed behind a size": chunked(b"2\nhi\r\n0\r\n\r\n"),
    "line feed behind a chunk": chunked(b"2\r\nhi\n0\r\n\r\n"),
    "nothing behind a chunk": chunked(b"2\r\nhi0\r\n\r\n"),
    "something behind a chunk": chunked(b"2\r\nhixx0\r\n\r\n"),
    "carriage return behind a chunk": chunked(b"2\r\nhi\r0\r\n\r\n"),
    # Trailers.
    "trailer": chunked(b"2\r\nhi\r\n0\r\nA: b\r\n\r\n") + GET,
    "trailers of framing": chunked(b"2\r\nhi\r\n0\r\nContent-Length: 3\r\nHost: y\r\n\r\n") + GET,
    "trailer with encoding": chunked(b"0\r\nTransfer-Encoding: gzip\r\n\r\n") + GET,
    "trailer with the same encoding": chunked(b"0\r\nTransfer-Encoding: chunked\r\n\r\n") + GET,
    "trailer with odd length": chunked(b"0\r\nContent-Length: x\r\n\r\n") + GET,
    "odd trailer": chunked(b"0\r\nA b\r\n\r\n"),
    "folded trailer": chunked(b"0\r\nA: b\r\n c\r\n\r\n"),
    "trailer with line feeds": chunked(b"0\nA: b\n\n"),
    "no end of trailers": chunked(b"0\r\n") + GET,
}

PARTS = [
    *(
        b"\r",
        b"\n",
        b"\r\n",
        b"\r\n\r\n",
        b" ",
        b"\t",
        b"\0",
        b"\x01",
        b"\x7f",
        b"\xff",
        b":",
        b";",
        b",",
        b"0",
        b"5",
        b"g",
    ),
    *(b"Host: y\r\n", b"Content-Length: 5\r\n", b"Transfer-Encoding: chunked\r\n", b"Connection: close\r\n"),
    *(b"HTTP/1.1", b" folded\r\n", b"1\r\nx\r\n", b"0\r\n\r\n", GET, b"hello"),
]
"""Bytes to insert anywhere in a request."""


@st.composite
def mutations(draw: st.DrawFn) -> bytes:
    """Requests of the corpus with a few changes: bytes inserted, removed, doubled or replaced."""
    raw = draw(st.sampled_from(list(CORPUS.values())))
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, len(raw)))
        until = min(len(raw), at + draw(st.integers(0, 6)))
        put = draw(st.one_of(st.sampled_from(PARTS), st.binary(max_size=2), st.just(raw[at:until] * 2)))
        raw = raw[:at] + put + raw[until:]
    return raw


TOKENS = st.text("!#$%&'*+-.^_`|~0123456789abcXYZ", min_size=1, max_size=12).map(str.encode)
VALUES = st.binary(max_size=12)
BODIES = st.binary(max_size=40)


@st.composite
def made(draw: st.DrawFn) -> bytes:
    """Valid and nearly valid requests, assembled from their parts."""
    lines = [b"Host: x", *(b"%b:%b" % pair for pair in draw(st.lists(st.tuples(TOKENS, VALUES), max_size=3)))]
    body = draw(BODIES)
    match draw(st.sampled_from(["none", "length", "chunked"])):
        case "length":
            lines.append(b"Content-Length: %d" % len(body))
        case "chunked":
            lines.append(b"Transfer-Encoding: chunked")
            at = draw(st.lists(st.integers(0, len(body)), max_size=3).map(sorted))
            pieces = [body[a:b] for a, b in zip([0, *at], [*at, len(body)], strict=True) if a < b]
            body = b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces) + b"0\r\n\r\n"
        case _:
            body = b""
    target = draw(st.text("/abc?=&%20-._~", max_size=10)).encode()
    method = draw(st.sampled_from([b"GET", b"POST", b"PUT", b"DELETE", b"OPTIONS"]))
    return b"\r\n".join([b"%b /%b HTTP/1.1" % (method, target), *draw(st.permutations(lines)), b"", body])
