"""Token verification: valid tokens are accepted and all others refused."""

from __future__ import annotations

import json
import time
from datetime import datetime, tzinfo
from typing import Any, Self

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlane.errors import InvalidRequest, Unauthenticated
from fairlane.http.auth.tokens import Tokens, claim_names, public_keys, published_keys, secret_key
from fairlane.model.names import DEFAULT_TENANT
from fairlane.model.principal import Principal
from tests.tokens.minted import (
    SECRET,
    by_hand,
    claims,
    encoded,
    jwk,
    private_pem,
    public_pem,
    token,
)

KINDS = ("HS256", "RS256", "ES256", "EdDSA")


def verifier(*kinds: str, **more: Any) -> Tokens:
    keys = []
    for kind in kinds or ("HS256",):
        keys += [secret_key(SECRET)] if kind == "HS256" else public_keys(public_pem(kind))
    return Tokens(keys, **more)


def refused(token: bytes, tokens: Tokens | None = None) -> str:
    with pytest.raises(Unauthenticated) as error:
        (tokens or verifier()).verify(token)
    return str(error.value)


@pytest.mark.parametrize("kind", KINDS)
def test_a_token_becomes_its_caller(kind: str) -> None:
    caller = verifier(kind).verify(token(kind, tenant="acme"))
    assert (caller.tenant, caller.name, caller.subject) == ("acme", "token:alice", "alice")
    assert caller.allows("push", "orders")
    assert not caller.allows_some("keys")
    assert caller.expires_at is not None
    assert 3600e6 < caller.expires_at - time.time_ns() // 1000 < 3631e6


def test_each_token_is_verified_by_the_key_of_its_algorithm() -> None:
    tokens = verifier(*KINDS)
    assert {tokens.verify(token(kind)).subject for kind in KINDS} == {"alice"}


@pytest.mark.parametrize("alg", ["none", "None", "nOnE", "", None, 5, ["HS256"], "HS512", "hs256"])
def test_a_token_cannot_choose_its_algorithm(alg: Any) -> None:
    refused(by_hand({"alg": alg, "typ": "JWT"}, claims()))
    refused(by_hand({"alg": alg}, claims()).rpartition(b".")[0] + b".")


@pytest.mark.parametrize("kind", ["RS256", "ES256", "EdDSA"])
def test_a_public_key_is_no_secret(kind: str) -> None:
    """The key confusion attack: an HMAC made with the public key, which everybody knows."""
    pem = public_pem(kind).encode()
    for secret in (pem, pem.strip(), pem.replace(b"\n", b"")):
        refused(by_hand({"alg": "HS256"}, claims(), secret), verifier(kind))
        refused(by_hand({"alg": kind}, claims(), secret), verifier(kind))
        refused(by_hand({"alg": "HS256"}, claims(), secret), verifier(kind, "HS256"))


@pytest.mark.parametrize("name", ["jwk", "jku", "x5u", "x5c"])
def test_keys_in_a_token_are_nobodys(name: str) -> None:
    value = jwk("other") if name == "jwk" else "https://evil.example/keys"
    refused(by_hand({"alg": "HS256", name: value}, claims(), b"e" * 32))
    assert verifier().verify(by_hand({"alg": "HS256", name: value}, claims())).subject == "alice"


@pytest.mark.parametrize("extra", [{"crit": ["exp"]}, {"crit": []}, {"b64": False, "crit": ["b64"]}, {"b64": True}])
def test_what_a_header_demands_is_refused(extra: dict[str, Any]) -> None:
    refused(by_hand({"alg": "HS256"} | extra, claims()))


@pytest.mark.parametrize("kid", ["../../dev/null", "' OR 1=1 --", "x" * 10_240, "", "\x00", 5, ["a"], {"a": 1}])
def test_an_odd_kid_finds_nothing(kid: Any) -> None:
    tokens = Tokens(published_keys([jwk("RS256", kid="one")]))
    refused(token("RS256", header={"kid": kid}) if isinstance(kid, str) else by_hand({"alg": "RS256", "kid": kid}, {}))
    with pytest.raises(Unauthenticated):
        tokens.verify(by_hand({"alg": "RS256", "kid": kid}, claims()))


def test_issuer_and_audience_are_compared() -> None:
    tokens = verifier(issuer="https://id.example", audience="fairlane")
    good: dict[str, Any] = {"iss": "https://id.example", "aud": "fairlane"}
    assert tokens.verify(token(**good)).subject == "alice"
    assert tokens.verify(token(**good | {"aud": ["other", "fairlane"]})).subject == "alice"
    wrong: dict[str, Any]
    for wrong in (
        *({"iss": "https://id.example.evil"}, {"iss": "https://id.example/"}, {"iss": None}),
        *(
            {"aud": "fairlane2"},
            {"aud": "fair"},
            {"aud": ["other"]},
            {"aud": []},
            {"aud": None},
            {"aud": {"fairlane": 1}},
        ),
    ):
        refused(token(**good | wrong), tokens)
    assert "issuer" in refused(token(**good | {"iss": "https://other.example"}), tokens)
    assert "audience" in refused(token(aud="another service"))


def test_times_are_compared_with_half_a_minute_to_spare() -> None:
    now = int(time.time())
    good = verifier()
    good_times: list[dict[str, Any]] = [{"exp": now - 15}, {"nbf": now + 15}, {"iat": now + 15}]
    for times in good_times:
        assert good.verify(token(**times)).subject == "alice"
    assert "expired" in refused(token(exp=now - 31))
    assert "not valid yet" in refused(token(nbf=now + 120))
    assert "not valid yet" in refused(token(iat=now + 120))
    assert "exp" in refused(token(exp=None))


def test_half_a_minute_is_thirty_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Test the exact limits with a frozen clock."""
    now = int(time.time())

    class Standing(datetime):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> Self:
            return cls.fromtimestamp(now, tz)

    monkeypatch.setattr("jwt.api_jwt.datetime", Standing)
    good: list[dict[str, Any]] = [{"exp": now - 29}, {"nbf": now + 30}, {"iat": now + 30}]
    bad: list[dict[str, Any]] = [{"exp": now - 30}, {"exp": now - 31}, {"nbf": now + 31}, {"iat": now + 31}]
    for times in good:
        assert verifier().verify(token(**times)).subject == "alice"
    for times in bad:
        refused(token(**times))


@pytest.mark.parametrize("exp", ["4102444800", True, "never", [4102444800], {}, -1, 0])
def test_an_end_that_is_no_time_to_come_is_refused(exp: Any) -> None:
    refused(by_hand({"alg": "HS256"}, claims() | {"exp": exp}))


@pytest.mark.parametrize("exp", [b"NaN", b"Infinity", b"1e999", b"-Infinity"])
def test_an_end_that_never_comes_is_refused(exp: bytes) -> None:
    refused(by_hand({"alg": "HS256"}, b'{"sub":"alice","role":"admin","exp":%b}' % exp))


def test_a_far_end_is_an_end() -> None:
    assert verifier().verify(token(exp=10**30)).expires_at is not None
    assert verifier().verify(by_hand({"alg": "HS256"}, b'{"exp":1e308}')).expires_at is not None


def test_a_signature_is_whole_and_written_one_way() -> None:
    good = token()
    head, _, signature = good.rpartition(b".")
    for wrong in (
        *(head, head + b".", head + b"..", b"." + good, good + b".", good + b"=", good + b"\n", b" " + good),
        *(head + b"." + signature[:-1], head + b"." + signature + b"A", head + b".\xff", good.replace(b".", b"\n.")),
        *(head + b"." + signature[:-1] + bytes([signature[-1] ^ 1]), b"", b".", b"..", b"a.b.c", good + b"." + good),
    ):
        refused(wrong)


def test_a_name_that_comes_twice_is_refused() -> None:
    payload = json.dumps(claims()).encode()
    refused(by_hand(b'{"alg":"HS256"}', payload[:-1] + b',"role":"admin"}'))
    refused(by_hand(b'{"alg":"none","alg":"HS256"}', payload))
    refused(by_hand(b'{"alg":"HS256"}', payload[:-1] + b',"x":{"a":1,"a":2}}'))


@pytest.mark.parametrize(
    "role", ["not-admin", "admin ", "Admin", "admin,read-only", "admin:*", "", ["admin"], {"admin": True}, True, 1]
)
def test_only_the_whole_name_of_a_role_is_one(role: Any) -> None:
    caller = verifier().verify(by_hand({"alg": "HS256"}, claims() | {"role": role}))
    assert not caller.allows_some("push", "status", "system", "keys")


def test_roles_and_scopes_add_up() -> None:
    def of(**more: Any) -> Principal:
        return verifier().verify(token(role=None, **more))

    assert of(roles=["staff", "read-only"]).allows_all("status")
    assert not of(roles=["staff", "read-only"]).allows_some("push")
    assert not of(roles="admin").allows_some("push")
    assert not of(roles=[["admin"], {"a": "admin"}, 5]).allows_some("push")
    one = of(scope="openid push:orders.* profile admin pop:a*b status:orders.eu")
    assert one.allows("push", "orders.eu")
    assert not one.allows("push", "order")
    assert one.allows("status", "orders.eu")
    assert not one.allows_some("pop", "keys", "browse")
    assert of(scope=["push:a", 5, None]).allows("push", "a")
    assert not of(scope={"push": 1}).allows_some("push")


def test_claims_may_have_other_names() -> None:
    names = claim_names("roles=https://example.org/groups, sub=email,tenant=org")
    tokens = verifier(claims=names)
    more: dict[str, Any] = {"https://example.org/groups": ["admin"], "email": "a@example.org", "org": "acme"}
    caller = tokens.verify(token(role=None, **more))
    assert (caller.subject, caller.tenant) == ("a@example.org", "acme")
    assert caller.allows_all("keys")
    with pytest.raises(InvalidRequest, match="jwt_claims"):
        claim_names("rolle=x")


def test_a_token_without_the_claim_that_was_configured_for_tenants_is_refused() -> None:
    tokens = verifier(claims=claim_names("tenant=org"))
    with pytest.raises(Unauthenticated, match="names no tenant"):
        tokens.verify(token())
    assert tokens.verify(token(org=DEFAULT_TENANT)).tenant == DEFAULT_TENANT


@pytest.mark.parametrize("tenant", ["", 5, ["a"], "x" * 300, "a\x00b"])
def test_a_tenant_that_is_none_is_refused(tenant: Any) -> None:
    refused(token(tenant=tenant))
    assert verifier().verify(token()).tenant == DEFAULT_TENANT


def test_a_subject_that_is_none_is_refused() -> None:
    refused(token(sub="x" * 256))
    refused(by_hand({"alg": "HS256"}, claims() | {"sub": 5}))
    nobody = verifier().verify(token(sub=None))
    assert (nobody.name, nobody.subject) == ("token", None)


def test_a_large_token_is_not_looked_at() -> None:
    assert "neither a key" in refused(token(more="x" * 65_536))
    assert "neither a key" in refused(b"x" * 65_536)


def test_deep_json_is_refused() -> None:
    refused(by_hand({"alg": "HS256"}, b"[" * 4000))
    refused(by_hand(b'{"alg":' + b"[" * 4000, claims()))
    refused(by_hand(b"[]", claims()))
    refused(by_hand({"alg": "HS256"}, b"[1]"))
    refused(by_hand({"alg": "HS256"}, b'"exp"'))


def test_weak_keys_are_refused_at_start() -> None:
    for wrong, word in (("short", "32 bytes"), (public_pem("RS256"), "public key")):
        with pytest.raises(InvalidRequest, match=word):
            secret_key(wrong)
    for text, word in (
        (public_pem("short"), "1024 bits"),
        (private_pem("RS256"), "private"),
        (public_pem("P-384"), "must be RSA"),
        ("-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----", "must be RSA"),
        ("-----BEGIN PUBLIC KEY-----", "no key in PEM"),
        ("/nowhere/key.pem", "cannot read"),
        ("\x00", "cannot read"),
    ):
        with pytest.raises(InvalidRequest, match=word):
            public_keys(text)


def test_a_file_may_hold_the_keys(tmp_path: Any) -> None:
    path = tmp_path / "keys.pem"
    path.write_text(f"the old one\n{public_pem('RS256')}\nthe new one\n{public_pem('EdDSA')}")
    tokens = Tokens(public_keys(str(path)))
    assert tokens.verify(token("RS256")).subject == tokens.verify(token("EdDSA")).subject == "alice"


def test_of_published_keys_only_those_are_taken_that_verify() -> None:
    secret = {"kty": "oct", "k": encoded(SECRET.encode()).decode(), "alg": "HS256"}
    private = {"d": "AAAA"}
    wrong = [
        *(secret, jwk("short"), jwk("P-384"), jwk("RS256", use="enc"), jwk("RS256", alg="HS256"), jwk("RS256", kid=5)),
        *(
            jwk("RS256", **private),
            jwk("RS256", kty=["RSA"]),
            {"kty": "RSA"},
            {"kty": "RSA", "n": 5, "e": "!"},
            "x",
            None,
        ),
        *(jwk("ES256", x="AAAA"), jwk("EdDSA", x="AAAA"), jwk("EdDSA", crv="Ed448"), {"kty": "EC", "crv": "P-256"}),
    ]
    assert published_keys(wrong) == []
    assert [key.algorithm for key in published_keys([jwk("RS256"), jwk("ES256"), jwk("EdDSA")])] == list(KINDS[1:])


def test_a_token_is_verified_once(monkeypatch: pytest.MonkeyPatch) -> None:
    tokens, good, bad = verifier(), token(), by_hand({"alg": "HS256"}, claims(), b"e" * 32)
    first = tokens.verify(good)
    refused(bad, tokens)
    monkeypatch.setattr(Tokens, "_caller", None)
    assert tokens.verify(good) == first
    refused(bad, tokens)


def test_a_remembered_token_ends_with_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    tokens, good = verifier(), token()
    first = tokens.verify(good)
    end = first.expires_at
    again: list[object] = []

    def caller(_: object, token: object) -> object:
        again.append(token)
        return first

    monkeypatch.setattr(Tokens, "_caller", caller)
    tokens.verify(good)
    assert not again
    monkeypatch.setattr("fairlane.http.auth.tokens.wall_clock", lambda: end)
    tokens.verify(good)
    assert again == [good]


def test_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fairlane.http.auth.tokens._GOOD_MAX", 3)
    monkeypatch.setattr("fairlane.http.auth.tokens._BAD_MAX", 3)
    tokens = verifier()
    for number in range(10):
        tokens.verify(token(jti=str(number)))
        refused(b"bad%d" % number, tokens)
    assert len(tokens._good) <= 3
    assert len(tokens._bad) <= 3


GOOD = {kind: token(kind) for kind in ("HS256", "ES256", "EdDSA")}


@given(st.sampled_from(sorted(GOOD)), st.data())
def test_no_changed_token_is_good(kind: str, data: st.DataObject) -> None:
    """Bytes are changed, removed, inserted or doubled, and parts of other tokens are combined."""
    good = GOOD[kind]
    tokens = verifier(*GOOD)
    at = data.draw(st.integers(0, len(good) - 1))
    match data.draw(st.sampled_from(["bit", "byte", "cut", "insert", "swap", "part"])):
        case "bit":
            changed = good[:at] + bytes([good[at] ^ (1 << data.draw(st.integers(0, 7)))]) + good[at + 1 :]
        case "byte":
            changed = good[:at] + data.draw(st.binary(max_size=3)) + good[at + 1 :]
        case "cut":
            changed = good[:at] + good[data.draw(st.integers(at, len(good))) :]
        case "insert":
            changed = good[:at] + data.draw(st.binary(min_size=1, max_size=20)) + good[at:]
        case "swap":
            other = GOOD[data.draw(st.sampled_from(sorted(GOOD)))].split(b".")
            parts = good.split(b".")
            parts[data.draw(st.integers(0, 2))] = other[data.draw(st.integers(0, 2))]
            changed = b".".join(parts)
        case _:
            parts = good.split(b".")
            parts[data.draw(st.integers(0, 2))] = encoded(data.draw(st.binary(max_size=200)))
            changed = b".".join(parts)
    if changed in GOOD.values():
        return
    with pytest.raises(Unauthenticated):
        tokens.verify(changed)


words = st.sampled_from(["", "admin", "read-only", "push", "pop:a*", "*", "a*b", "\x00", "\ud800", "x" * 300])
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | words,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=3),
    max_leaves=5,
)
names = st.sampled_from(["sub", "role", "roles", "scope", "tenant", "exp", "iat", "nbf", "iss", "aud", "jti", "x"])


@given(st.dictionaries(names, json_values))
def test_whatever_a_signed_token_claims_gives_a_caller_or_a_refusal(given: dict[str, Any]) -> None:
    try:
        caller = verifier().verify(by_hand({"alg": "HS256"}, claims() | given))
    except Unauthenticated:
        return
    assert caller.expires_at is not None
    assert not caller.allows_some("keys") or given.get("role") == "admin" or "admin" in (given.get("roles") or [])
