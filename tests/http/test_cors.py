"""Pages of other origins may use the API only if they are configured."""

from __future__ import annotations

import pytest

from fairlane.errors import InvalidRequest
from fairlane.http.cross_origin import Cors, parse_origins
from fairlane.http.server import Request, Response, json_response
from tests.http.wire import Wire

PAGE = b"https://app.example.com"


async def handler(request: Request) -> Response:
    return json_response({"method": request.method}, 405 if request.method == "OPTIONS" else 200)


def ask(method: str, **headers: bytes) -> Request:
    return Request(method, b"/", {name.replace("_", "-").encode(): value for name, value in headers.items()}, b"", "")


def preflight(origin: bytes) -> Request:
    return ask(
        "OPTIONS",
        origin=origin,
        access_control_request_method=b"POST",
        access_control_request_headers=b"content-type",
    )


async def test_without_configuration_no_header_is_sent(wire: Wire) -> None:
    answer = await wire.get("/livez", headers={"origin": PAGE.decode()})
    assert answer.status == 200
    assert not [name for name in answer.headers if name.lower().startswith("access-control")]
    asked = {"origin": PAGE.decode(), "access-control-request-method": "POST"}
    (await wire.ask("OPTIONS", "/livez", headers=asked)).refused(405)


@pytest.mark.parametrize("origins", ["*", PAGE.decode(), f"https://other.example.com, {PAGE.decode()}"])
async def test_a_page_of_a_named_origin_may_read_answers(origins: str) -> None:
    cors = Cors(handler, parse_origins(origins))
    answer = await cors(ask("GET", origin=PAGE))
    assert answer.status == 200
    assert answer.body == b'{"method":"GET"}'
    headers = dict(answer.headers)
    assert headers[b"access-control-allow-origin"] == PAGE
    assert headers[b"vary"] == b"origin"
    assert headers[b"access-control-expose-headers"] == b"retry-after"


async def test_a_preflight_is_answered_without_the_application() -> None:
    answer = await Cors(handler, parse_origins(PAGE.decode()))(preflight(PAGE))
    assert (answer.status, answer.body) == (204, b"")
    headers = dict(answer.headers)
    assert headers[b"access-control-allow-origin"] == PAGE
    assert b"POST" in headers[b"access-control-allow-methods"]
    assert headers[b"access-control-allow-headers"] == b"content-type"


@pytest.mark.parametrize("origin", [b"https://evil.example.com", b"null", b"https://app.example.com.evil.com"])
async def test_a_page_of_another_origin_gets_no_header(origin: bytes) -> None:
    cors = Cors(handler, parse_origins(PAGE.decode()))
    for request in (ask("GET", origin=origin), preflight(origin), ask("GET")):
        assert not (await cors(request)).headers


@pytest.mark.parametrize("origins", ["example.com", "https://app.example.com/", "", "ftp://x", "https://"])
def test_an_origin_that_is_none_is_refused(origins: str) -> None:
    with pytest.raises(InvalidRequest, match="an origin is"):
        parse_origins(origins)
