"""Tokens of an identity provider (JWT): verification, and their callers.

Each key has one algorithm, by its kind. A token is only compared with keys of the algorithm that it names. Of its
header only `alg` and `kid` are used. Keys and key URLs in it (`jwk`, `jku`, `x5u`) are ignored.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import jwt
import msgspec
from jwt.algorithms import get_default_algorithms

from fairlane.errors import InvalidRequest, Unauthenticated, Unavailable
from fairlane.model.names import DEFAULT_TENANT, check_name
from fairlane.model.principal import ROLES, SCOPES, Grants, Principal
from fairlane.runtime.clock import wall_clock

if TYPE_CHECKING:
    from fairlane.http.auth.jwks import Jwks

SKEW_SECONDS: Final = 30
SECRET_BYTES_MIN: Final = 32
RSA_BITS_MIN: Final = 2048
CLAIMS: Final = {"role": "role", "roles": "roles", "scopes": "scope", "tenant": "tenant", "sub": "sub"}
"""Facts about the caller in a token, with the default names of their claims."""
_ALGORITHMS: Final = ("RS256", "ES256", "EdDSA")
_TOKEN_BYTES_MAX: Final = 8192
_SUBJECT_MAX: Final = 255
_KEYS_TRIED_MAX: Final = 10
_GOOD_MAX: Final = 10_000
_BAD_MAX: Final = 1_000
_BAD_MICROS: Final = 10_000_000
"""Time for which a bad token is remembered. A token that is used too early becomes valid later."""
_FAR_SECONDS: Final = 2**40
_FORM = re.compile(rb"[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+")
_PEM = re.compile(r"-----BEGIN [A-Z ]+-----.+?-----END [A-Z ]+-----", re.DOTALL)


class VerificationKey(NamedTuple):
    """A key that tokens are verified with."""

    algorithm: str
    key: Any
    kid: str | None = None
    """Id of the key, which tokens may name. None if it has none."""


def secret_key(secret: str) -> VerificationKey:
    """Return the key of HS256, which the issuer of the tokens has, too."""
    if len(secret.encode()) < SECRET_BYTES_MIN:
        raise InvalidRequest(
            f"jwt_secret is shorter than {SECRET_BYTES_MIN} bytes; create one with `openssl rand -hex 32`"
        )
    try:
        return VerificationKey("HS256", get_default_algorithms()["HS256"].prepare_key(secret))
    except jwt.InvalidKeyError:
        raise InvalidRequest("jwt_secret is a public key, which is not secret: set it as jwt_public_key") from None


def public_keys(text: str) -> list[VerificationKey]:
    """Return public keys in PEM, or in the file of this name."""
    if "-----BEGIN" not in text:
        try:
            text = Path(text).read_text(encoding="ascii")
        except (OSError, ValueError) as error:
            raise InvalidRequest(f"cannot read jwt_public_key from {text!r:.200}: {error}") from None
    found = _PEM.findall(text)
    if not found:
        raise InvalidRequest("jwt_public_key holds no key in PEM (-----BEGIN PUBLIC KEY-----)")
    return [_public_key(one) for one in found]


def _public_key(pem: str) -> VerificationKey:
    for name in _ALGORITHMS:
        try:
            key = get_default_algorithms()[name].prepare_key(pem)
        except (jwt.InvalidKeyError, ValueError, TypeError):
            continue  # a key of another kind
        if "Private" in type(key).__name__:
            raise InvalidRequest("jwt_public_key is a private key: the broker only verifies, and must not have it")
        if wrong := _weakness(name, key):
            raise InvalidRequest(f"jwt_public_key is {wrong}")
        return VerificationKey(name, key)
    raise InvalidRequest("jwt_public_key must be RSA (RS256), P-256 (ES256) or Ed25519 (EdDSA)")


def _weakness(algorithm: str, key: Any) -> str | None:
    """Return the reason why a key is too weak. None if it is strong enough."""
    if algorithm == "RS256" and key.key_size < RSA_BITS_MIN:
        return f"an RSA key of {key.key_size} bits; at least {RSA_BITS_MIN} are needed"
    if algorithm == "EdDSA" and "25519" not in type(key).__name__:
        return "an Ed448 key; use Ed25519"
    return None


def published_keys(found: Iterable[Any]) -> list[VerificationKey]:
    """Return the keys of a JWKS that can verify tokens. Symmetric keys are ignored, because everyone can read them."""
    kinds: dict[tuple[Any, Any], str] = {
        ("RSA", None): "RS256",
        ("EC", "P-256"): "ES256",
        ("OKP", "Ed25519"): "EdDSA",
    }
    keys = []
    for one in found:
        if not isinstance(one, dict) or one.get("use", "sig") != "sig" or "d" in one:
            continue
        kind, kid = (one.get("kty"), one.get("crv")), one.get("kid")
        name = kinds.get(kind) if all(isinstance(part, str | None) for part in kind) else None
        if name is None or one.get("alg", name) != name or not isinstance(kid, str | None):
            continue
        try:
            key = get_default_algorithms()[name].from_jwk(one)
        except (jwt.PyJWTError, ValueError, TypeError, KeyError):
            continue
        if _weakness(name, key) is None:
            keys.append(VerificationKey(name, key, kid))
    return keys


def claim_names(text: str) -> dict[str, str]:
    """Parse custom names of claims: `role=groups,tenant=org`."""
    names = dict(CLAIMS)
    for entry in filter(None, map(str.strip, text.split(","))):
        what, _, claim = entry.partition("=")
        if what not in names or not claim:
            raise InvalidRequest(
                f"jwt_claims: {entry!r:.80} must be one of {', '.join(f'{one}=CLAIM' for one in CLAIMS)}"
            )
        names[what] = claim
    return names


class Tokens:
    """The verifier of tokens. A valid token is not verified again until it expires or the keys change."""

    def __init__(
        self,
        keys: Sequence[VerificationKey],
        jwks: Jwks | None = None,
        *,
        issuer: str | None = None,
        audience: str | None = None,
        claims: Mapping[str, str] = CLAIMS,
    ) -> None:
        self._keys = list(keys)
        self.jwks = jwks
        self._issuer = issuer
        self._audience = audience
        self._claims = claims
        self._good: dict[bytes, Principal] = {}
        self._bad: dict[bytes, tuple[int, str]] = {}
        self._published: list[VerificationKey] = []

    async def start(self) -> None:
        """Fetch the published keys, if possible."""
        if self.jwks is not None:
            await self.jwks.read()
            self.jwks.start()

    async def stop(self) -> None:
        if self.jwks is not None:
            await self.jwks.stop()

    def verify(self, token: bytes, tenants: Collection[str] = ()) -> Principal:
        """Return the caller that a token identifies. `tenants` are the existing tenants, empty if not known.

        Raises Unauthenticated if the token is invalid, and Unavailable if its key is not known yet. A token without a
        tenant belongs to the default tenant, and is refused if other tenants exist or the claim is configured.
        """
        caller = self._verified(token)
        if not caller.tenant:
            claim = self._claims["tenant"]
            if claim != CLAIMS["tenant"] or len(tenants) > 1:
                raise Unauthenticated(f"the token names no tenant: it needs the claim {claim}")
            return msgspec.structs.replace(caller, tenant=DEFAULT_TENANT)
        if tenants and caller.tenant not in tenants:
            raise Unauthenticated(f"the token's {self._claims['tenant']} names a tenant that does not exist")
        return caller

    def _verified(self, token: bytes) -> Principal:
        """Return the caller of a valid token, with an empty tenant if it names none."""
        if self.jwks is not None and self.jwks.keys is not self._published:
            self._published = self.jwks.keys
            self._good.clear()  # the key may have been removed
            self._bad.clear()
        digest, now = sha256(token).digest(), wall_clock()
        caller = self._good.get(digest)
        if caller is not None and caller.expires_at is not None and now < caller.expires_at:
            return caller
        until, text = self._bad.get(digest, (0, ""))
        if now < until:
            raise Unauthenticated(text)
        try:
            caller = self._caller(token)
        except Unauthenticated as error:
            if len(self._bad) >= _BAD_MAX:
                self._bad.clear()
            self._bad[digest] = now + _BAD_MICROS, str(error)
            raise
        if len(self._good) >= _GOOD_MAX:
            self._good.clear()
        self._good[digest] = caller
        return caller

    def _caller(self, token: bytes) -> Principal:
        if len(token) > _TOKEN_BYTES_MAX or not _FORM.fullmatch(token):
            raise Unauthenticated("the credential is neither a key of this broker nor a token (JWT)")
        header = _object(token.split(b".")[0])
        kid = header.get("kid")
        if not isinstance(kid, str | None) or "crit" in header or "b64" in header:
            raise Unauthenticated("the token's header requires something that is not supported")
        for key in self._fitting(header.get("alg"), kid):
            try:
                jwt.decode(
                    token,
                    key.key,
                    algorithms=[key.algorithm],
                    options={"require": ["exp"], "enforce_minimum_key_length": True},
                    issuer=self._issuer,
                    audience=self._audience,
                    leeway=SKEW_SECONDS,
                )
            except jwt.InvalidSignatureError:
                continue
            except jwt.PyJWTError as error:
                raise Unauthenticated(_sentence(error)) from None
            return self._read(_object(token.split(b".")[1]))
        raise Unauthenticated("the token's signature is invalid")

    def _fitting(self, algorithm: Any, kid: str | None) -> list[VerificationKey]:
        """Return the keys that may have signed a token. Raises Unavailable while they are being fetched."""
        keys = [
            key
            for key in (*self._keys, *self._published)
            if key.algorithm == algorithm and (kid is None or key.kid is None or key.kid == kid)
        ]
        if keys:
            return keys[:_KEYS_TRIED_MAX]
        if self.jwks is not None and algorithm in _ALGORITHMS and self.jwks.request_refresh():
            raise Unavailable("the identity provider's keys are being read; try again")
        raise Unauthenticated("no key of this broker verifies the token: its kid or alg is not known")

    def _read(self, claims: Mapping[str, Any]) -> Principal:
        names = self._claims
        subject, tenant = claims.get(names["sub"]), claims.get(names["tenant"])
        if not isinstance(subject, str | None) or len(subject or "") > _SUBJECT_MAX:
            raise Unauthenticated(f"the token's {names['sub']} is not a text of up to {_SUBJECT_MAX} characters")
        try:
            if names["tenant"] in claims:
                if not isinstance(tenant, str):
                    raise InvalidRequest("it is not a text")
                check_name("a tenant", tenant)
        except InvalidRequest as error:
            raise Unauthenticated(f"the token's {names['tenant']} names no tenant: {error}") from None
        if type(claims["exp"]) not in (int, float):
            raise Unauthenticated("the token's exp is not a number")
        return Principal(
            tenant=tenant or "",
            name=f"token:{subject}" if subject else "token",
            subject=subject,
            expires_at=int(min(claims["exp"], _FAR_SECONDS) + SKEW_SECONDS) * 1_000_000,
            grants=Grants.parse(_granted(claims, names)),
        )


def _granted(claims: Mapping[str, Any], names: Mapping[str, str]) -> list[str]:
    """Return the roles and scopes in the claims. Ignores other values, because tokens also serve other services."""
    role, roles, scopes = claims.get(names["role"]), claims.get(names["roles"]), claims.get(names["scopes"])
    words = [role, *(roles if isinstance(roles, list) else ())]
    granted = [word for word in words if isinstance(word, str) and word in ROLES]
    for word in scopes.split(" ") if isinstance(scopes, str) else scopes if isinstance(scopes, list) else ():
        if isinstance(word, str) and word.partition(":")[0] in SCOPES:
            try:
                Grants.parse([word])
            except InvalidRequest:
                continue
            granted.append(word)
    return granted


def _sentence(error: jwt.PyJWTError) -> str:
    match error:
        case jwt.ExpiredSignatureError():
            return "the token has expired; get a new one"
        case jwt.ImmatureSignatureError():
            return "the token is not valid yet"
        case jwt.InvalidAudienceError():
            return "the token is for another audience"
        case jwt.InvalidIssuerError():
            return "the token is from another issuer"
        case jwt.MissingRequiredClaimError():
            return f"the token has no {error.claim}"
    return "the token is malformed"


def _object(part: bytes) -> dict[str, Any]:
    """Decode a part of a token. Raises Unauthenticated for repeated names, which parsers treat differently."""
    try:
        found = json.loads(base64.urlsafe_b64decode(part + b"=" * (-len(part) % 4)), object_pairs_hook=_pairs)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise Unauthenticated("the token is malformed")
    return found


def _pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a name comes twice")
    return found
