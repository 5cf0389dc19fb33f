"""Authentication: finds the principal of a request by its key, token or login session."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from fairlane.broker.broker import Broker
from fairlane.errors import FairlaneError, Forbidden, Unauthenticated
from fairlane.http.auditing import target_of
from fairlane.http.auth.scopes import check_route
from fairlane.http.cross_origin import is_own_page
from fairlane.http.problems import problem
from fairlane.http.router import Route
from fairlane.http.server import Request, Response
from fairlane.model.api_key import PREFIX
from fairlane.model.principal import NOBODY, PUBLIC, SIGNATURE, Principal

COOKIE: Final = b"fairlane_session"
"""Name of the cookie that holds the id of a login session."""
COOKIE_HTTPS: Final = b"__Host-" + COOKIE
"""Name of the cookie over https. Browsers accept it from this host only, and send it over https only."""
_COOKIES_TRIED_MAX: Final = 10
_PRINCIPALS_MAX: Final = 1000

if TYPE_CHECKING:
    from fairlane.http.auth.tokens import Tokens, VerificationKey


class Authenticator:
    """Authenticates requests and refuses those whose caller may not use the route."""

    def __init__(self, broker: Broker, tokens: Tokens | None = None) -> None:
        self._credentials = broker.process.credentials
        self._tokens = tokens
        if tokens is not None:
            broker.process.credentials.require(required=True, ignored=False)
        self._audit = broker.audit
        self._tenants = broker.tenants
        self._known = broker.tenants.known
        self._principals: dict[bytes, Principal] = {}
        """Cache of verified principals by their Authorization header."""
        self._version = 0
        self._jwks = tokens.jwks if tokens is not None else None
        self._published: list[VerificationKey] = []

    def refusal(self, request: Request, route: Route) -> Response | None:
        """Return the error response if the caller may not use the route, else None. Sets `request.caller`."""
        request.caller = NOBODY
        if route.needs in (PUBLIC, SIGNATURE):
            return None
        try:
            caller = request.caller = self.authenticate(request)
            if route.operator or route.needs not in caller.grants.whole:
                check_route(caller, route, request.params.get("queue"))
        except FairlaneError as error:
            if isinstance(error, Forbidden | Unauthenticated):
                self._audit.refused(request.caller, route.name, target_of(request, route), request.peer)
            return problem(error, request)
        return None

    def authenticate(self, request: Request) -> Principal:
        """Return the principal of a request. Raises Unauthenticated without a valid credential."""
        given = request.headers.get(b"authorization", b"")
        if not given and b"cookie" in request.headers and is_own_page(request):
            return self._from_session(request)
        jwks = self._jwks
        if jwks is not None and jwks.keys is not self._published:
            self._published = jwks.keys  # cached tokens may be signed by a key that was removed
            self._principals.clear()
        if self._known is not self._tenants.known:
            self._known = self._tenants.known  # cached tokens may name a tenant that was deleted
            self._principals.clear()
        if self._version != self._credentials.version or len(self._principals) > _PRINCIPALS_MAX:
            self._version = self._credentials.version
            self._principals.clear()
        caller = self._principals.get(given)
        if caller is not None and (caller.expires_at is None or self._credentials.is_good(caller)):
            return caller
        caller = self._principals[given] = self.verify(bearer(given))
        return caller

    def principal_or_nobody(self, request: Request) -> Principal:
        """Return the caller of a public route, or NOBODY if there is no valid credential."""
        caller: Principal = request.caller
        if caller is not NOBODY:
            return caller
        try:
            return self.authenticate(request)
        except FairlaneError:
            return NOBODY

    def _from_session(self, request: Request) -> Principal:
        """Return the principal of the first valid login session in the cookies.

        A program on another port of this host can set cookies of the same name. They must not hide the right one.
        """
        sessions = session_ids(request)
        for session_id in sessions:
            caller = self._credentials.logged_in(session_id)
            if caller is not None and (caller.key_id is not None or self._tokens is not None):
                return caller
        if sessions:
            raise Unauthenticated("the login session has ended: log in again")
        return self.verify(b"")

    def verify(self, secret: bytes) -> Principal:
        """Return the principal of a key or token. Raises Unauthenticated if it is not valid."""
        if secret.startswith(PREFIX.encode()):
            return self._credentials.caller(secret.decode("latin-1"))
        if secret and self._tokens is not None:
            return self._tokens.verify(secret, self._tenants.known)
        if secret:
            raise Unauthenticated("the credential is not a key of this broker: those begin with fl_")
        known = self._credentials.known
        none = (
            "; there is none yet: `fairlane key create --role admin --store ...` makes the first, in a SQLite file "
            "while no broker has it open"
        )
        raise Unauthenticated(
            "this broker requires a key: send it as `Authorization: Bearer fl_...`; the command line and the clients "
            f"of Fairlane take it from FAIRLANE_KEY{none if known and not known.count and not self._tokens else ''}"
        )


def session_ids(request: Request) -> list[str]:
    """Return the ids of login sessions in the cookies of a request, https ones first."""
    cookies = [part.strip().partition(b"=") for part in request.headers.get(b"cookie", b"").split(b";")]
    found = [id for wanted in (COOKIE_HTTPS, COOKIE) for name, _, id in cookies if name == wanted and id]
    return [id.decode("latin-1") for id in found[:_COOKIES_TRIED_MAX]]


def bearer(header: bytes) -> bytes:
    """Return the credential in an `Authorization` header, with or without the word Bearer."""
    scheme, blank, credential = header.partition(b" ")
    return credential.strip() if blank and scheme.lower() == b"bearer" else header
