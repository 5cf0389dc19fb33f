"""Access: who asks, by the credential in a request's header, and whether that caller may use the route."""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final

import msgspec

from fairlane.broker.audit import Outcome
from fairlane.broker.broker import Broker
from fairlane.errors import FairlaneError, Forbidden, Unauthenticated
from fairlane.http.browsers import by_own_page
from fairlane.http.problems import problem
from fairlane.http.router import Route
from fairlane.http.server import Request, Response
from fairlane.model.access import KNOWN, NOBODY, PUBLIC, SIGNATURE, Caller
from fairlane.model.api_key import PREFIX
from fairlane.model.names import DEFAULT_TENANT

COOKIE: Final = b"fairlane_session"
"""Name of the cookie that holds the id of a login session."""
COOKIE_HTTPS: Final = b"__Host-" + COOKIE
"""Its name on pages by https: browsers accept it from this host alone, and send it by https alone."""
_COOKIES_TRIED_MAX: Final = 10
_MET_MAX: Final = 1000

if TYPE_CHECKING:
    from fairlane.http.tokens import Key, Tokens


class Access:
    """The credentials that an application asks for."""

    def __init__(self, broker: Broker, tokens: Tokens | None = None) -> None:
        self._credentials = broker.credentials
        self._tokens = tokens
        if tokens is not None:
            broker.credentials.ask(required=True, ignored=False)
        self._audit = broker.audit
        self._tenants = broker.tenants
        self._known = broker.tenants.known
        self._met: dict[bytes, Caller] = {}
        """Callers by their header: clients send the same few again and again."""
        self._version = 0
        self._jwks = tokens.jwks if tokens is not None else None
        self._published: list[Key] = []

    def refusal(self, request: Request, route: Route) -> Response | None:
        """The answer to a request that may not use the route. `request.caller` is who asks."""
        request.caller = NOBODY
        if route.needs in (PUBLIC, SIGNATURE):
            return None
        try:
            caller = request.caller = self.caller(request)
            if route.operator or route.needs not in caller.grants.whole:
                check(caller, route, request.params.get("queue"))
        except FairlaneError as error:
            if isinstance(error, Forbidden | Unauthenticated):
                self._audit.refused(request.caller, route.name, target_of(request, route), request.peer)
            return problem(error, request)
        return None

    def caller(self, request: Request) -> Caller:
        """Unauthenticated without a credential, or with one that is not good."""
        given = request.headers.get(b"authorization", b"")
        if not given and b"cookie" in request.headers and by_own_page(request):
            return self._logged_in(request)
        jwks = self._jwks
        if jwks is not None and jwks.keys is not self._published:
            self._published = jwks.keys  # some were verified by a key that may be gone
            self._met.clear()
        if self._known is not self._tenants.known:
            self._known = self._tenants.known  # some tokens name a tenant that may be gone, or none
            self._met.clear()
        if self._version != self._credentials.version or len(self._met) > _MET_MAX:
            self._version = self._credentials.version
            self._met.clear()
        caller = self._met.get(given)
        if caller is not None and (caller.expires_at is None or self._credentials.is_good(caller)):
            return caller
        caller = self._met[given] = self.verify(bearer(given))
        return caller

    def caller_or_nobody(self, request: Request) -> Caller:
        """Return the caller of a public route. Returns NOBODY without a credential, or with one that is not good."""
        caller: Caller = request.caller
        if caller is not NOBODY:
            return caller
        try:
            return self.caller(request)
        except FairlaneError:
            return NOBODY

    def _logged_in(self, request: Request) -> Caller:
        """The caller of the first session in the cookies that is good. A program on another port of this host can add
        cookies of the same name, and must not hide the right one."""
        sessions = session_ids(request)
        for session_id in sessions:
            caller = self._credentials.logged_in(session_id)
            if caller is not None and (caller.key_id is not None or self._tokens is not None):
                return caller
        if sessions:
            raise Unauthenticated("the login is over: log in again")
        return self.verify(b"")

    def verify(self, secret: bytes) -> Caller:
        """Whoever has this key or token. Unauthenticated if it is not good."""
        if secret.startswith(PREFIX.encode()):
            return self._credentials.caller(secret.decode("latin-1"))
        if secret and self._tokens is not None:
            return self._tokens.verify(secret, self._tenants.known)
        if secret:
            raise Unauthenticated("the credential is no key of this broker: those begin with fl_")
        known = self._credentials.known
        none = (
            "; there is none yet: `fairlane key create --role admin --store ...` makes the first, in a SQLite file "
            "while no broker has it open"
        )
        raise Unauthenticated(
            "this broker asks for a key: send it as `Authorization: Bearer fl_...`; the command line and the clients "
            f"of Fairlane take it from FAIRLANE_KEY{none if known and not known.count and not self._tokens else ''}"
        )


def session_ids(request: Request) -> list[str]:
    """Return the ids of login sessions in the cookies of a request, those by https first."""
    cookies = [part.strip().partition(b"=") for part in request.headers.get(b"cookie", b"").split(b";")]
    found = [id for wanted in (COOKIE_HTTPS, COOKIE) for name, _, id in cookies if name == wanted and id]
    return [id.decode("latin-1") for id in found[:_COOKIES_TRIED_MAX]]


def bearer(header: bytes) -> bytes:
    """The credential in an `Authorization` header; some clients send it bare."""
    scheme, blank, credential = header.partition(b" ")
    return credential.strip() if blank and scheme.lower() == b"bearer" else header


def check(caller: Caller, route: Route, queue: str | None) -> None:
    """Forbidden unless the caller has one of the scopes that a route needs: for the queue, or for all queues; where
    its endpoint looks at each, for some. What is about the whole broker is for the default tenant."""
    if route.operator and caller.tenant != DEFAULT_TENANT:
        raise Forbidden(f"{caller.name} may not {route.method} {route.path}: it is about all tenants")
    scopes = route.needs.split()
    if route.needs == KNOWN:
        return
    if queue is not None:
        allowed = any(caller.allows(scope, queue) for scope in scopes)
    elif route.each:
        allowed = caller.allows_some(*scopes)
    else:
        allowed = any(map(caller.allows_all, scopes))
    if not allowed:
        scope = " or ".join(scopes if queue is None else [f"{scope}:{queue:.100}" for scope in scopes])
        wide = "" if queue is not None or route.each else ", for all queues"
        raise Forbidden(f"{caller.name} may not {route.method} {route.path}: it needs the scope {scope}{wide}")


_UNNOTED: Final = {"queue", "name", "app", "data", "error", "source", "spec", "appliedBy"}
"""Fields that are part of the target already, may hold data of messages, or are long."""
_VALUE_CHARS_MAX: Final = 100


class _Deleted(msgspec.Struct):
    """The part of an answer that tells whether there was something to delete."""

    deleted: Any = True
    existed: Any = True


_decode_deleted = msgspec.json.Decoder(_Deleted).decode


def target_of(request: Request, route: Route) -> str:
    """Return what a request is about, for the audit log: its path, and the names and settings in its body. Fields that
    the route does not declare are left out."""
    path = request.path + (b"?" + request.query_string if request.query_string else b"")
    target = path[:200].decode("latin-1")
    if not request.body:
        return target
    with contextlib.suppress(msgspec.MsgspecError, UnicodeDecodeError, RecursionError, TypeError):
        body = msgspec.json.decode(request.body)
        if isinstance(body, dict):
            spec = body.get("spec")
            app = spec.get("app") if isinstance(spec, dict) else body.get("app")
            target += "".join(
                f" {one:.80}" for one in (body.get("queue"), body.get("name"), app) if isinstance(one, str)
            )
            for field in msgspec.structs.fields(route.body) if route.body else ():
                name = field.encode_name
                if name not in _UNNOTED and body.get(name) not in (None, [], {}):
                    target += f" {name}={msgspec.json.encode(body[name]).decode():.{_VALUE_CHARS_MAX}}"
    return target


def _outcome(request: Request, response: Response) -> Outcome:
    """Return `failed` for an error, and for a delete that found nothing."""
    if response.status >= 400:
        return "failed"
    if request.method == "DELETE" and response.body:
        with contextlib.suppress(msgspec.MsgspecError, TypeError):
            answer = _decode_deleted(response.body)
            return "failed" if answer.deleted is False or answer.existed is False else "done"
    return "done"


async def audited(broker: Broker, request: Request, answer: Callable[[], Awaitable[Response]]) -> Response:
    """The answer to a request that changes something: made when the audit log has that it begins, and given when the
    log has what came of it. What came of one whose client left meanwhile is not known."""
    what = request.caller, request.found.name, target_of(request, request.found)
    began = await broker.audit.begin(*what, request.peer)
    try:
        response = await answer()
    except Exception as error:  # whatever it is, it is noted and goes on
        outcome: Outcome = "refused" if isinstance(error, Forbidden) else "failed"
        await broker.audit.add(*what, outcome, request.peer, began)
        raise
    await broker.audit.add(*what, _outcome(request, response), request.peer, began)
    return response
