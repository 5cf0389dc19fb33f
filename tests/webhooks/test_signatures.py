"""The signature formats of the senders, byte by byte, and rules that all of them follow."""

from __future__ import annotations

import base64
import hmac

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairlane.errors import InvalidRequest
from fairlane.spec.ir import Verify
from fairlane.webhooks.schemes import PRESETS, Scheme, keys_of, scheme_of
from fairlane.webhooks.signatures import SIGNATURES_MAX, TOLERANCE_SECONDS, sign, verify

Headers = dict[bytes, bytes]

SLACK_BODY = (
    b"token=xyzz0WbapA4vBCDEFasx0q6G&team_id=T1DC2JH3J&team_domain=testteamnow&channel_id=G8PSS9T3V"
    b"&channel_name=foobar&user_id=U2CERLKJA&user_name=roadrunner&command=%2Fwebhook-collect&text="
    b"&response_url=https%3A%2F%2Fhooks.slack.com%2Fcommands%2FT1DC2JH3J%2F397700885554%2F96rGlfmibIGlgcZRskXaIFfN"
    b"&trigger_id=398738663015.47445629121.803a0bc887a14d10d2c447fce8b6703c"
)

# Documented examples of senders, or values computed by other code: (preset, key, headers, body, time)
VECTORS: list[tuple[str, bytes, Headers, bytes, float]] = [
    (
        "github",
        b"It's a Secret to Everybody",
        {b"x-hub-signature-256": b"sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17"},
        b"Hello, World!",
        0,
    ),
    (
        "slack",
        b"8f742231b10e8888abcd99yyyzzz85a5",
        {
            b"x-slack-request-timestamp": b"1531420618",
            b"x-slack-signature": b"v0=a2114d57b48eac39b9ad189dd8316235a7b4a8d21a10bd27519666489c69b503",
        },
        SLACK_BODY,
        1531420618,
    ),
    (
        "standard_webhooks",
        keys_of(PRESETS["standard_webhooks"], ["whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"])[0],
        {
            b"webhook-id": b"msg_p5jXN8AQM9LWM0D4loKWxJek",
            b"webhook-timestamp": b"1614265330",
            b"webhook-signature": b"v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
        },
        b'{"test": 2432232314}',
        1614265330,
    ),
    (
        "stripe",
        b"whsec_test_secret",
        {b"stripe-signature": b"t=1700000000,v1=248a374f50f943a28b0f6ab50faf9a7e7e29b710fa26df9fb1618b9bf8ea9c9a"},
        b'{"id":"evt_1"}',
        1700000000,
    ),
    (
        "pagerduty",
        b"secret",
        {b"x-pagerduty-signature": b"v1=cf3f2d9bd59858110d7f83800c0c5dc6ceeb36e5b0f67f67d1963acdb0d6b6b7"},
        b'{"event":{"id":"01"}}',
        0,
    ),
    (
        "shopify",
        b"hush",
        {b"x-shopify-hmac-sha256": b"VnKUjZsLuN5iZWjn5EntcBVCF9kMN43LglzCE1/GSeY="},
        b'{"id":1}',
        0,
    ),
]
KEY = b"0123456789abcdef01234567"
NOW = 1_700_000_000.0
EVERY = pytest.mark.parametrize("scheme", PRESETS.values(), ids=PRESETS)


def signed(scheme: Scheme, key: bytes = KEY, body: bytes = b"body", now: float = NOW) -> Headers:
    return sign(scheme, key, body, delivery_id="d-1", now=now)


@pytest.mark.parametrize(("preset", "key", "headers", "body", "now"), VECTORS, ids=[case[0] for case in VECTORS])
def test_a_signature_that_its_sender_documents_is_good(
    preset: str, key: bytes, headers: Headers, body: bytes, now: float
) -> None:
    scheme = PRESETS[preset]
    assert verify(scheme, [key], headers, body, now=now) is None
    assert verify(scheme, [key], headers, body + b" ", now=now) == "mismatch"
    assert verify(scheme, [key[:-1] + b"?"], headers, body, now=now) == "mismatch"


@EVERY
def test_what_is_signed_is_verified(scheme: Scheme) -> None:
    assert verify(scheme, [KEY], signed(scheme), b"body", now=NOW) is None


@EVERY
def test_one_flipped_bit_anywhere_in_the_body_is_seen(scheme: Scheme) -> None:
    body = bytes(range(256))
    headers = signed(scheme, body=body)
    for index in range(len(body)):
        flipped = body[:index] + bytes([body[index] ^ 1]) + body[index + 1 :]
        assert verify(scheme, [KEY], headers, flipped, now=NOW) == "mismatch"


@EVERY
def test_the_bytes_are_what_is_signed_whatever_they_are(scheme: Scheme) -> None:
    for body in (b"", b"\xff\xfe\x00", "ü".encode("latin-1"), b'{"a" : 1}\r\n', b"\x1f\x8b\x08gzip"):
        assert verify(scheme, [KEY], signed(scheme, body=body), body, now=NOW) is None


@EVERY
def test_a_signature_by_any_of_two_secrets_is_good_and_by_no_other(scheme: Scheme) -> None:
    old, new, strange = b"o" * 32, b"n" * 32, b"s" * 32
    for key in (old, new):
        assert verify(scheme, [new, old], signed(scheme, key), b"body", now=NOW) is None
    assert verify(scheme, [new, old], signed(scheme, strange), b"body", now=NOW) == "mismatch"


@pytest.mark.parametrize("preset", ["stripe", "pagerduty", "standard_webhooks"])
def test_of_several_signatures_one_must_be_good_and_other_kinds_do_not_count(preset: str) -> None:
    scheme = PRESETS[preset]
    headers = signed(scheme)
    good = headers[scheme.signature_header]
    wrong = signed(scheme, b"x" * 32)[scheme.signature_header].split(scheme.separator)[-1]
    other = scheme.marker.replace(b"1", b"0") + good.split(scheme.marker)[-1]
    both = scheme.separator.join([good, wrong, other])
    assert verify(scheme, [KEY], headers | {scheme.signature_header: both}, b"body", now=NOW) is None
    timestamp = scheme.separator.join(part for part in good.split(scheme.separator) if part.startswith(b"t="))
    only_other = scheme.separator.join(filter(None, [timestamp, other]))
    assert verify(scheme, [KEY], headers | {scheme.signature_header: only_other}, b"body", now=NOW) == "malformed"


@EVERY
def test_every_key_is_compared_with_every_signature(scheme: Scheme, monkeypatch: pytest.MonkeyPatch) -> None:
    compared = []
    compare = hmac.compare_digest

    def counting(one: bytes, other: bytes) -> bool:
        compared.append((one, other))
        return compare(one, other)

    headers = signed(scheme)
    monkeypatch.setattr("fairlane.webhooks.signatures.hmac.compare_digest", counting)
    assert verify(scheme, [KEY, b"k" * 32], headers, b"body", now=NOW) is None
    assert len(compared) == 2, "the first key was right, and the second was looked at all the same"
    assert all(type(one) is bytes and type(other) is bytes for one, other in compared)


@EVERY
def test_no_signature_is_no_way_in(scheme: Scheme) -> None:
    headers = signed(scheme)
    del headers[scheme.signature_header]
    assert verify(scheme, [KEY], headers, b"body", now=NOW) == "missing"
    assert verify(scheme, [KEY], headers | {scheme.signature_header: b""}, b"body", now=NOW) == "malformed"


@EVERY
@pytest.mark.parametrize(
    "bad",
    [
        b"x",
        b"=",
        b",",
        b"v1",
        b"v1=",
        b"v1,",
        b"sha256=",
        b"sha256=zz",
        b"v1,!!!",
        b"v0=" + b"a" * 63,
        b"\xff\xfe",
        b"\0",
    ],
)
def test_a_header_that_is_malformed_is_refused_and_no_error(scheme: Scheme, bad: bytes) -> None:
    for value in (bad, scheme.marker + bad, bad * 400, scheme.separator.join([scheme.marker + bad] * 10_000)):
        refused = verify(scheme, [KEY], signed(scheme) | {scheme.signature_header: value}, b"body", now=NOW)
        assert refused == "malformed"


@EVERY
@settings(deadline=None)
@given(value=st.binary(max_size=200))
def test_no_header_breaks_the_verifier(scheme: Scheme, value: bytes) -> None:
    headers = signed(scheme)
    for name in headers:
        assert verify(scheme, [KEY], headers | {name: value}, b"body", now=NOW) in (
            "malformed",
            "mismatch",
            "stale",
        ) or (name == scheme.delivery_id_header and name != scheme.id_header)


@EVERY
def test_a_truncated_signature_is_never_good(scheme: Scheme) -> None:
    whole = signed(scheme)[scheme.signature_header]
    for length in range(len(whole)):
        headers = signed(scheme) | {scheme.signature_header: whole[:length]}
        assert verify(scheme, [KEY], headers, b"body", now=NOW) is not None


@pytest.mark.parametrize("preset", ["pagerduty", "stripe", "standard_webhooks"])
def test_more_signatures_than_any_sender_sends_are_refused_uncompared(preset: str) -> None:
    scheme = PRESETS[preset]
    headers = signed(scheme)
    many = scheme.separator.join([headers[scheme.signature_header], *[scheme.marker + b"00"] * (SIGNATURES_MAX + 1)])
    assert verify(scheme, [KEY], headers | {scheme.signature_header: many}, b"body", now=NOW) == "malformed"


@pytest.mark.parametrize("preset", ["slack", "standard_webhooks", "stripe"])
def test_an_old_or_early_timestamp_is_refused_and_the_edges_are_not(preset: str) -> None:
    scheme = PRESETS[preset]
    headers = signed(scheme)
    for offset in (-TOLERANCE_SECONDS, 0, TOLERANCE_SECONDS):
        assert verify(scheme, [KEY], headers, b"body", now=NOW + offset) is None
    for offset in (-TOLERANCE_SECONDS - 1, TOLERANCE_SECONDS + 1, 10**9, -(10**9)):
        assert verify(scheme, [KEY], headers, b"body", now=NOW + offset) == "stale"


@pytest.mark.parametrize("preset", ["slack", "standard_webhooks", "stripe"])
@pytest.mark.parametrize(
    "timestamp",
    [b"", b" 17", b"+17", b"-17", b"1_700", b"1e3", "\u0661\u0667".encode(), b"170000000000", b"17.0", b"17, 17"],
)
def test_a_timestamp_is_digits_and_nothing_that_python_takes_for_a_number(preset: str, timestamp: bytes) -> None:
    """The signature is valid, made by somebody who has the secret."""
    scheme = PRESETS[preset]
    plain = str(int(NOW)).encode()
    headers = {name: value.replace(plain, timestamp) for name, value in signed(scheme).items()}
    assert verify(scheme, [KEY], headers, b"body", now=NOW) == "malformed"


def test_the_timestamp_is_signed_as_it_was_written() -> None:
    """Leading zeros make the same number but another text."""
    scheme = PRESETS["slack"]
    headers = signed(scheme)
    headers[b"x-slack-request-timestamp"] = b"0" + headers[b"x-slack-request-timestamp"]
    assert verify(scheme, [KEY], headers, b"body", now=NOW) == "mismatch"


def test_a_timestamp_that_is_there_twice_is_refused() -> None:
    scheme = PRESETS["stripe"]
    headers = signed(scheme)
    doubled = b"t=1," + headers[b"stripe-signature"]
    assert verify(scheme, [KEY], {b"stripe-signature": doubled}, b"body", now=NOW) == "malformed"


@EVERY
def test_a_signature_header_that_came_twice_is_refused(scheme: Scheme) -> None:
    """The server joins headers of one name with a comma and a space."""
    headers = signed(scheme)
    value = headers[scheme.signature_header]
    joined = headers | {scheme.signature_header: value + b", " + value}
    assert verify(scheme, [KEY], joined, b"body", now=NOW) == "malformed"


@pytest.mark.parametrize("strange", [b"a.b", b"", b"x" * 256])
def test_an_id_that_could_be_read_in_two_ways_is_refused(strange: bytes) -> None:
    scheme = PRESETS["standard_webhooks"]
    headers = sign(scheme, KEY, b"body", delivery_id=strange.decode(), now=NOW)
    assert verify(scheme, [KEY], headers, b"body", now=NOW) == "malformed"


def test_a_sender_without_a_preset_is_verified_by_what_the_spec_says_of_it() -> None:
    scheme = scheme_of(
        Verify(scheme="hmac", secret_env=("S",), header="X-Signature", prefix="sig=", algorithm="sha512")
    )
    digest = hmac.digest(KEY, b"body", "sha512")
    assert verify(scheme, [KEY], {b"x-signature": b"sig=" + digest.hex().encode()}, b"body", now=NOW) is None
    assert verify(scheme, [KEY], {b"x-signature": digest.hex().encode()}, b"body", now=NOW) == "malformed"
    plain = scheme_of(Verify(scheme="hmac", secret_env=("S",), header="X-Signature", encoding="base64"))
    text = base64.b64encode(hmac.digest(KEY, b"body", "sha256"))
    assert verify(plain, [KEY], {b"x-signature": text}, b"body", now=NOW) is None
    assert scheme_of(Verify(scheme="github", secret_env=("S",))) is PRESETS["github"]


@EVERY
@pytest.mark.parametrize("secrets", [[], [""], ["tiny one"], ["a" * 32] * 3, ["a" * 32, ""]])
def test_a_secret_that_is_missing_or_short_is_refused_before_it_is_ever_used(
    scheme: Scheme, secrets: list[str]
) -> None:
    with pytest.raises(InvalidRequest) as caught:
        keys_of(scheme, secrets)
    assert not any(secret in str(caught.value) for secret in secrets if secret)


def test_a_standard_webhooks_secret_is_base64() -> None:
    scheme = PRESETS["standard_webhooks"]
    assert keys_of(scheme, ["whsec_" + base64.b64encode(KEY).decode()]) == (KEY,)
    for key in (KEY, KEY + b"1", KEY + b"12"):  # some senders leave the padding off
        assert keys_of(scheme, ["whsec_" + base64.b64encode(key).decode().rstrip("=")]) == (key,)
    for wrong in ("whsec_not base64 at all, is it?", "whsec_ü", "whsec_" + base64.b64encode(KEY[:20]).decode()):
        with pytest.raises(InvalidRequest):
            keys_of(scheme, [wrong])
