"""Fuzz targets for the parsers of external bytes. Only Fairlane's own errors may be raised."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

import msgspec

from fairlane.config import load_settings
from fairlane.errors import FairlaneError
from fairlane.http.auth.authentication import bearer
from fairlane.http.auth.tokens import Tokens, claim_names, public_keys, published_keys, secret_key
from fairlane.http.cross_origin import Hosts, content_type_refusal, cross_site_refusal, parse_origins
from fairlane.http.request_body import decode, read_query
from fairlane.http.route_table import ROUTES
from fairlane.http.router import Route, Router
from fairlane.http.server import Request
from fairlane.http.server.peer_limits import Proxies
from fairlane.model.api_key import is_whole
from fairlane.model.ids import PartitionId, parse_uuid
from fairlane.model.lease import LeaseId
from fairlane.model.moment import Moment
from fairlane.model.nesting import check_depth
from fairlane.model.principal import Grants
from fairlane.otel import tracing
from fairlane.outbound.addresses import NOTHING_INSIDE, Allowed, check_url
from fairlane.outbound.reply import Reply
from fairlane.poller.pages import page_of, url_of
from fairlane.poller.source import Source, origin
from fairlane.runtime.backoff import seconds_of
from fairlane.spec import ir
from fairlane.spec.check import check
from fairlane.spec.expression.evaluate import compile_expression
from fairlane.store.contract.browse import ListPosition
from fairlane.store.keyring import Keyring
from fairlane.webhooks.webhook import Received, Webhook
from tests.http.test_parser import by_ours
from tests.spec.samples import compiled

CORPUS: Final = Path(__file__).parent / "corpus"
_NO_JSON: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
_SECRET: Final = "0123456789abcdef0123456789abcdef"
_BODIES: Final = sorted({route.body for route in ROUTES if route.body}, key=repr)
_QUERIES: Final = sorted({route.query for route in ROUTES if route.query}, key=repr)
_ROUTER: Final = Router(ROUTES)
_TOKENS: Final = Tokens([secret_key(_SECRET)])
_HOSTS: Final = Hosts(["broker.example", "127.0.0.1"])
_PROXIES: Final = Proxies(["10.0.0.0/8", "2001:db8::/32"])
_PRESETS: Final = ("github", "pagerduty", "shopify", "slack", "standard_webhooks", "stripe")
_APP: Final = compiled(
    "app A { queue Q { delivery { dedup_seconds: 1d } }"
    + "".join(f' webhook {name} {{ queue: Q verify: {name} {{ secret_env: "S" }} }}' for name in _PRESETS)
    + " }"
).spec
_HOOKS: Final = [
    Webhook(_APP, name, lambda names: ["whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY="]) for name in _PRESETS
]


@contextmanager
def _meant() -> Iterator[None]:
    """Accept Fairlane's own errors. Any other exception is a defect."""
    with suppress(FairlaneError):
        yield


def _headers(data: bytes) -> dict[bytes, bytes]:
    """Parse `name: value` lines into headers as the server does, with lower-case names."""
    lines = (line.partition(b":") for line in data.split(b"\n") if b":" in line)
    return {name.strip().lower(): value.strip() for name, _, value in lines}


def http(data: bytes) -> None:
    """Parse requests, also chunked ones. Split into two pieces they must parse the same."""
    whole, cut = by_ours([data]), len(data) // 2
    pieces = by_ours([data[:cut], data[cut:]])
    assert whole.requests == pieces.requests
    assert whole.end == pieces.end


def target(data: bytes) -> None:
    """Parse a request's path and query, up to its route."""
    path, _, query = data.partition(b"?")
    with _meant():
        request = Request("GET", b"/" + path, {b"host": b"x"}, b"", "", query)
        found = _ROUTER.match(request)
        if isinstance(found, Route):
            found.check_query(request)
            if found.query is not None:
                read_query(request.query, found.query)


def query(data: bytes) -> None:
    kind = _QUERIES[data[0] % len(_QUERIES)] if data else _QUERIES[0]
    with _meant():
        read_query(Request("GET", b"/", {}, b"", "", data[1:]).query, kind)


def body(data: bytes) -> None:
    """Parse JSON as the body of each route."""
    kind = _BODIES[data[0] % len(_BODIES)] if data else _BODIES[0]
    with _meant():
        decode(data[1:], kind)


def depth(data: bytes) -> None:
    with _meant():
        check_depth(data)


def browser(data: bytes) -> None:
    """Check what browsers send about a page, against settings about pages."""
    headers = {b"host": b"x"} | _headers(data)
    request = Request("POST", b"/api/v1/push", headers, b"", "")
    with _meant():
        _HOSTS.refusal(headers[b"host"])
        cross_site_refusal(request, frozenset([b"https://a.example"]))
        content_type_refusal(request)
        parse_origins(data.decode("latin-1"))


def forwarded(data: bytes) -> None:
    peer, _, hops = data.partition(b"\n")
    client = _PROXIES.client(peer.decode("latin-1"), hops)
    assert client == peer.decode("latin-1") or ":" in client or client.count(".") == 3
    with _meant():
        Proxies(data.decode("latin-1").split(","))


def token(data: bytes) -> None:
    with _meant():
        assert not _TOKENS.verify(bearer(data)).allows_some("keys")


def jwks(data: bytes) -> None:
    with suppress(*_NO_JSON):
        found = msgspec.json.decode(data)
        published_keys(found if isinstance(found, list) else [found])


def key(data: bytes) -> None:
    """Parse keys and scopes."""
    text = data.decode("latin-1")
    is_whole(text)
    for make in (Keyring.parse, lambda text: public_keys("-----BEGIN" + text), claim_names, secret_key):
        with _meant():
            make(text)
    with _meant():
        Grants.parse(text.split(" "))


def signature(data: bytes) -> None:
    """Verify a webhook: headers, an empty line, and its body."""
    head, _, body = data.partition(b"\n\n")
    received = Received(_headers(head), body, "192.0.2.1", 1_700_000_000_000_000)
    for hook in _HOOKS:
        assert hook.refusal(received) is not None, "nobody here knows the secret"
        with _meant():
            hook.challenge(received)
            hook.key(received, hook.message(received))


def times(data: bytes) -> None:
    text = data.decode("latin-1")
    with suppress(ValueError):
        assert Moment.parse(Moment.parse(text).isoformat()) == Moment.parse(text)
    found = seconds_of(text)
    assert found is None or found >= 0
    tracing.context_of_request({b"traceparent": data, b"tracestate": data})


def cursor(data: bytes) -> None:
    """Parse ids and cursors that clients send back."""
    text = data.decode("latin-1")
    for parse in (ListPosition.parse, PartitionId.parse, LeaseId.parse, parse_uuid):
        with _meant():
            parse(text)


def config(data: bytes) -> None:
    with tempfile.NamedTemporaryFile() as file, _meant():
        file.write(data)
        file.flush()
        load_settings({}, Path(file.name))


def spec(data: bytes) -> None:
    """Parse the text of a spec."""
    with _meant():
        compiled(data.decode("latin-1"))


def document(data: bytes) -> None:
    """Parse a spec document as a broker receives it."""
    with suppress(*_NO_JSON), _meant():
        check(msgspec.json.decode(data, type=ir.Spec))


def expression(data: bytes) -> None:
    text, _, message = data.partition(b"\n")
    value: Any = {}
    with suppress(*_NO_JSON):
        value = msgspec.json.decode(message)
    with _meant():
        compile_expression(text.decode("latin-1"))(value if isinstance(value, dict) else {})


def outbound(data: bytes) -> None:
    """Check URLs to call against an allow list."""
    text = data.decode("latin-1")
    with _meant():
        check_url(text, NOTHING_INSIDE)
    with _meant():
        Allowed.parse(text.split(","))


def page(data: bytes) -> None:
    """Parse an API's answer to a poller: a Link header, a line end, and the body."""
    link, _, body = data.partition(b"\n")
    for paging in ("id", "token", "link"):
        source = Source(name="s", url="https://a.example/x", queue="q", paging=paging, items="items")
        with _meant():
            found = page_of(source, None, Reply(200, {"Link": link.decode("latin-1")}, body))
            assert origin(url_of(source, found.cursor)) == origin(source.url)


TARGETS: Final[dict[str, Callable[[bytes], None]]] = {
    one.__name__: one
    for one in (
        *(http, target, query, body, depth, browser, forwarded, token, jwks, key, signature, times, cursor),
        *(config, spec, document, expression, outbound, page),
    )
}
