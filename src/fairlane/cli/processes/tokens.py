"""The token verifier of the settings."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairlane.config import Settings
from fairlane.errors import CommandFailed, InvalidRequest

if TYPE_CHECKING:
    from fairlane.http.auth.tokens import Tokens


def token_verifier(settings: Settings) -> Tokens | None:
    """Return the verifier, or None if the settings have no token keys. Raises InvalidRequest for invalid ones."""
    if not (settings.jwt_secret or settings.jwt_public_key or settings.jwt_jwks_url):
        if settings.jwt_issuer or settings.jwt_audience or settings.jwt_claims:
            raise InvalidRequest("tokens need a key: set jwt_secret, jwt_public_key or jwt_jwks_url")
        return None
    from fairlane.http.auth.jwks import Jwks
    from fairlane.http.auth.tokens import Tokens, claim_names, public_keys, secret_key
    from fairlane.outbound.addresses import Allowed

    keys = [secret_key(settings.jwt_secret)] if settings.jwt_secret else []
    if settings.jwt_public_key:
        keys += public_keys(settings.jwt_public_key)
    jwks = None
    if settings.jwt_jwks_url:
        if not (settings.jwt_issuer or settings.jwt_audience):
            raise InvalidRequest(
                "jwt_jwks_url needs jwt_audience or jwt_issuer: a provider signs tokens for other services with the "
                "same keys"
            )
        try:
            jwks = Jwks(settings.jwt_jwks_url, Allowed.parse(settings.outbound_allow.split(",")))
        except CommandFailed as error:
            raise InvalidRequest(f"jwt_jwks_url: {error}") from None
    return Tokens(
        keys,
        jwks,
        issuer=settings.jwt_issuer or None,
        audience=settings.jwt_audience or None,
        claims=claim_names(settings.jwt_claims),
    )
