"""Keys of an identity provider: rotated, temporarily unavailable, too many, or at another address."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import pytest

from fairlane.errors import CommandFailed, Unauthenticated, Unavailable
from fairlane.http.auth import jwks
from fairlane.http.auth.jwks import Jwks
from fairlane.http.auth.tokens import Tokens, secret_key
from fairlane.outbound.addresses import NOTHING_INSIDE, Allowed
from fairlane.outbound.client import OutboundClient
from tests.commands.conftest import Answers, said, serving  # noqa: F401
from tests.tokens.minted import SECRET, by_hand, claims, jwk, token
from tests.until import until

HERE = Allowed.parse(["127.0.0.1"])
Serving = Callable[..., AbstractAsyncContextManager[Answers]]


def published(*keys: dict[str, Any]) -> bytes:
    return said(200, json.dumps({"keys": keys}).encode(), "Content-Type: application/json")


def signed(kind: str, kid: str | None = None) -> bytes:
    return token(kind, header={"kid": kid} if kid else None, aud="fairlane")


@asynccontextmanager
async def verifying(url: str) -> AsyncIterator[tuple[Tokens, Jwks]]:
    keys = Jwks(url, HERE)
    tokens = Tokens([], keys, audience="fairlane")
    await tokens.start()
    try:
        yield tokens, keys
    finally:
        await tokens.stop()


async def test_a_token_is_verified_by_the_key_that_it_names(serving: Serving) -> None:  # noqa: F811
    async with (
        serving(published(jwk("RS256", kid="one"), jwk("EdDSA", kid="two"))) as provider,
        verifying(provider.url) as (tokens, _),
    ):
        assert tokens.verify(signed("RS256", "one")).subject == "alice"
        assert tokens.verify(signed("EdDSA", "two")).subject == "alice"
        assert tokens.verify(signed("EdDSA")).subject == "alice"  # without a kid, all keys are tried
        for wrong in (signed("EdDSA", "one"), signed("RS256", "two"), signed("ES256")):
            with pytest.raises((Unauthenticated, Unavailable)):
                tokens.verify(wrong)


async def test_an_unknown_key_is_asked_for_once_in_a_while(
    serving: Serving,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    old, new = published(jwk("RS256", kid="old")), published(jwk("EdDSA", kid="new"))
    async with serving(old, new) as provider, verifying(provider.url) as (tokens, keys):
        good = signed("RS256", "old")
        assert tokens.verify(good).subject == "alice"
        with pytest.raises(Unauthenticated, match="kid"):
            tokens.verify(signed("EdDSA", "new"))  # they were read recently
        assert len(provider.asked) == 1
        monkeypatch.setattr(jwks, "REFRESH_SECONDS_MIN", 0.0)
        with pytest.raises(Unavailable, match="try again"):
            tokens.verify(signed("EdDSA", "newer"))
        await until(lambda: keys.keys[0].kid == "new")
        assert tokens.verify(signed("EdDSA", "new")).subject == "alice"
        monkeypatch.undo()
        with pytest.raises(Unauthenticated):
            tokens.verify(good)  # its key is gone, and the cached copy too


async def test_keys_go_on_while_they_cannot_be_read(serving: Serving, caplog: pytest.LogCaptureFixture) -> None:  # noqa: F811
    elsewhere = "Location: http://127.0.0.1:1/keys"
    wrong = [
        *(
            said(500),
            said(404),
            said(302, b"", elsewhere),
            said(200, b"{"),
            said(200, b'{"keys":["\xff"]}'),
            said(200, b'{"keys":5}'),
            published(),
        ),
        *(
            said(200, b'{"keys":[' + b" " * 300_000 + b"]}"),
            published(*[jwk("RS256")] * 101),
            published({"kty": "oct"}),
        ),
    ]
    async with serving(published(jwk("RS256", kid="one")), *wrong) as provider:
        keys = Jwks(provider.url, HERE)
        tokens = Tokens([], keys, audience="fairlane")
        await keys.read()
        for number in range(len(wrong)):
            caplog.clear()
            await keys.read()
            assert "cannot read the signing keys" in caplog.text, number
            assert tokens.verify(signed("RS256", "one")).subject == "alice"
        assert {asked.line for asked in provider.asked} == {"GET /api HTTP/1.1"}  # no redirect was followed
    await keys.read()  # nobody listens
    assert tokens.verify(signed("RS256", "one")).subject == "alice"
    await keys._client.close()


async def test_without_keys_yet_one_asks_again(serving: Serving) -> None:  # noqa: F811
    async with serving(said(503)) as provider, verifying(provider.url) as (tokens, _):
        with pytest.raises(Unavailable):
            tokens.verify(signed("RS256", "one"))
        with pytest.raises(Unauthenticated):
            tokens.verify(by_hand({"alg": "HS256", "kid": "one"}, claims()))


async def test_keys_are_only_read_from_where_calls_may_go() -> None:
    for url in (
        *("http://id.example/keys", "https://127.0.0.1/keys", "https://169.254.169.254/keys", "file:///etc/passwd"),
        *(
            "https://user@id.example/keys",
            "https://2130706433/keys",
            "https://[::1]/keys",
            "https://id.example:22@10.0.0.1/",
        ),
    ):
        with pytest.raises(CommandFailed):
            Jwks(url, NOTHING_INSIDE)

    async def inside(_: str) -> list[Any]:
        import ipaddress

        return [ipaddress.ip_address("10.0.0.1")]

    keys = Jwks("https://id.example/keys", NOTHING_INSIDE, client=OutboundClient(NOTHING_INSIDE, lookup=inside))
    await keys.read()
    assert not keys.keys
    await keys._client.close()


async def test_a_published_secret_is_none(serving: Serving) -> None:  # noqa: F811
    oct_key = {"kty": "oct", "k": "AAAA", "kid": "one", "alg": "HS256"}
    async with serving(published(oct_key, jwk("RS256", kid="two"))) as provider:
        keys = Jwks(provider.url, HERE)
        await keys.read()
        tokens = Tokens([secret_key(SECRET)], keys)
        with pytest.raises(Unauthenticated):
            tokens.verify(by_hand({"alg": "HS256", "kid": "one"}, claims(), b"\x00\x00\x00"))
        await keys._client.close()
