"""The router: finds the route of a request by its raw path, so that a name with an encoded slash stays one name."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from inspect import Parameter, signature
from typing import Any, TypeVar
from urllib.parse import unquote_to_bytes

import msgspec

from fairlane.errors import InvalidRequest
from fairlane.http.request_body import check_parameters, decode, lists_of, read_query
from fairlane.http.server import Request, Response, error_response
from fairlane.wire.base import encode

JSON = "application/json"
EVENTS = "text/event-stream"
MISSING_CELLS = b"fairlane-missing-cells"
"""Header of an answer that leaves out the queues of these cells, because they do not answer."""
ADMIN = "/admin/"
"""Paths of the admin API, where `tenant_id` may name the tenant."""
_OURS = ("/api/", ADMIN, "/streams/")
_PATHS_MAX = 1000
_PATH_BYTES_MAX = 200
Endpoint = Callable[[Any, Request], Awaitable[Response]]
Handler = TypeVar("Handler", bound=Callable[..., Awaitable[Any]])


class Route(msgspec.Struct, frozen=True, kw_only=True):
    """One endpoint, with its description in OpenAPI."""

    method: str
    path: str
    endpoint: Endpoint
    summary: str
    tag: str
    needs: str
    """Scope that the caller needs, for the {queue} of the path or for all queues. Several scopes are alternatives."""
    each: bool = False
    """True if the endpoint checks each queue. Then a scope for any queue is enough to call it."""
    name: str = ""
    """Action name in the audit log, for example `queues.delete`."""
    audited: bool = True
    """True to record its requests in the audit log."""
    long: bool = False
    """True if it may wait long. It ends when the caller's credential expires."""
    body: Any = None
    """Type of the request body. None without one."""
    body_required: bool = True
    body_bytes_max: int = 1024 * 1024
    safe: bool = True
    """True for a GET without side effects, which HEAD requests may use, too."""
    answer: Any = None
    """Type of the response body on success."""
    query: Any = None
    """Struct whose fields are the query parameters."""
    statuses: tuple[int, ...] = (200,)
    rest: bool = False
    """True if the last part of its path matches the rest of a request's path."""
    operator: bool = False
    """True if it concerns the whole broker. Only callers of the default tenant may use it."""
    live: bool = False
    """True for a GET whose answer may be watched (GET /api/v1/live)."""
    queen: bool = False
    """True if it exists for Queen's clients only."""
    content_type: str = JSON
    """Content type on success. A route with another one and an `answer` chooses between them by `Accept`."""

    checked: set[bytes] = msgspec.field(default_factory=set)
    """Queries that passed the check before, because clients repeat the same few queries."""

    def check_query(self, request: Request) -> None:
        """Raise InvalidRequest for a parameter that the route does not take. Webhooks take any."""
        if self.path.startswith(_OURS):
            known: tuple[str, ...] = self.query.__struct_encode_fields__ if self.query else ()
            check_parameters(request.query, (*known, "tenant_id") if self.path.startswith(ADMIN) else known)
            for name in request.repeated:
                if self.query is None or name not in lists_of(self.query):
                    raise InvalidRequest(f"the parameter {name!r:.80} is given twice; give it once")
        if len(request.query_string) <= _PATH_BYTES_MAX:
            if len(self.checked) >= _PATHS_MAX:
                self.checked.clear()
            self.checked.add(request.query_string)


class Routes(list[Route]):
    """The routes of one family, each a decorated handler.

        @routes.post("/api/v1/schedules/{name}", needs="configure", each=True)
        async def define(broker: Broker, name: str, body: ScheduleOptions) -> Schedule: ...

    A handler gets the arguments that it names: `app`, `broker`, `request` or its `caller`, the parameters of its path,
    its `body` and its `query` by their annotations. A body with a default is optional. It returns its answer, or a
    Response, whose body `answer` declares. Its docstring is the description in OpenAPI. A handler that takes only `app`
    and `request` and returns a Response is the endpoint itself. It is called often, and decodes `body` and `query`
    itself.
    """

    def __init__(self, tag: str) -> None:
        super().__init__()
        self._tag = tag

    def get(self, *paths: str, needs: str, **more: Any) -> Callable[[Handler], Handler]:
        return partial(self._add, "GET", paths, {"needs": needs, **more})

    def post(self, *paths: str, needs: str, **more: Any) -> Callable[[Handler], Handler]:
        return partial(self._add, "POST", paths, {"needs": needs, **more})

    def put(self, *paths: str, needs: str, **more: Any) -> Callable[[Handler], Handler]:
        return partial(self._add, "PUT", paths, {"needs": needs, **more})

    def patch(self, *paths: str, needs: str, **more: Any) -> Callable[[Handler], Handler]:
        return partial(self._add, "PATCH", paths, {"needs": needs, **more})

    def delete(self, *paths: str, needs: str, **more: Any) -> Callable[[Handler], Handler]:
        return partial(self._add, "DELETE", paths, {"needs": needs, **more})

    def _add(self, method: str, paths: Sequence[str], more: dict[str, Any], handler: Handler) -> Handler:
        takes = signature(handler).parameters
        kinds = {
            name: eval(kind, handler.__globals__)  # noqa: S307  # the annotation, as this tree wrote it
            for name, kind in handler.__annotations__.items()
            if name in ("body", "query", "return")
        }
        if kinds["return"] not in (Response, None):
            more = {"answer": kinds["return"], **more}
        more = {"tag": self._tag, "body": kinds.get("body"), "query": kinds.get("query"), **more}
        more = {"name": f"{self._tag}.{handler.__name__}", "audited": method != "GET", **more}
        body = takes.get("body")
        needed = body is None or body.default is Parameter.empty
        summary = " ".join((handler.__doc__ or "").split())
        for path in paths:
            endpoint: Endpoint = handler
            if list(takes) != ["app", "request"] or kinds["return"] is not Response:
                default = msgspec.UNSET if needed else body and body.default
                endpoint = _endpoint(handler, kinds, list(takes), default, admin=path.startswith(ADMIN))
                if method == "GET":
                    endpoint = _naming_missing_cells(endpoint)
            self.append(
                Route(method=method, path=path, endpoint=endpoint, summary=summary, body_required=needed, **more)
            )
        return handler


def _endpoint(
    handler: Callable[..., Awaitable[Any]], kinds: dict[str, Any], names: list[str], default: Any, *, admin: bool
) -> Endpoint:
    """Return the handler as the application calls it."""

    def value(name: str, app: Any, request: Request) -> Any:
        match name:
            case "app":
                return app
            case "broker":
                return app.administered(request) if admin else app.broker_of(request)
            case "request":
                return request
            case "caller":
                return request.caller
            case "body":
                return decode(request.body, kinds["body"], default=default)
            case "query":
                return read_query(request.query, kinds["query"])
        return request.params[name]

    async def endpoint(app: Any, request: Request) -> Response:
        return respond(await handler(*[value(name, app, request) for name in names]))

    return endpoint


def _naming_missing_cells(endpoint: Endpoint) -> Endpoint:
    """Return an endpoint that adds a header if lists and totals leave out the queues of a cell."""

    async def answer_get(app: Any, request: Request) -> Response:
        before = app.broker.status.missing_cells()
        answer = await endpoint(app, request)
        missing = before | app.broker.status.missing_cells()
        return answer.plus((MISSING_CELLS, ", ".join(map(str, sorted(missing))).encode())) if missing else answer

    return answer_get


def respond(answer: Any, status: int = 200) -> Response:
    """Return an answer as JSON, unless it is a Response already. None becomes 204."""
    if isinstance(answer, Response):
        return answer
    return Response(204) if answer is None else Response(status, encode(answer))


class _Node:
    __slots__ = ("children", "parameter", "rest", "routes")

    def __init__(self) -> None:
        self.children: dict[bytes, _Node] = {}
        self.parameter: _Node | None = None
        self.rest = False
        self.routes: dict[str, Route] = {}


def _methods(route: Route) -> tuple[str, ...]:
    return ("GET", "HEAD") if route.method == "GET" and route.safe else (route.method,)


class Router:
    def __init__(self, routes: list[Route]) -> None:
        self.routes = routes
        self._root = _Node()
        self.static: dict[tuple[str, bytes], Route] = {}
        self.matched: dict[tuple[str, bytes], tuple[Route, dict[str, str]]] = {}
        """Cache of matched paths with their parameters, because clients use the same few paths."""
        for route in routes:
            self._add(route)

    def _add(self, route: Route) -> None:
        if "{" not in route.path:
            for method in _methods(route):
                self.static[method, route.path.encode()] = route
        node = self._root
        for part in route.path.split("/")[1:]:
            if part.startswith("{"):
                node.parameter = node.parameter or _Node()
                node = node.parameter
            else:
                node = node.children.setdefault(part.encode(), _Node())
        node.rest = route.rest
        assert route.method not in node.routes, f"{route.method} {route.path} is there twice"
        for method in _methods(route):
            node.routes[method] = route

    def match(self, request: Request) -> Route | Response:
        """Return the route, and fill in `request.params`. Returns a response for an unknown path or method."""
        method = request.method
        values: list[str] = []
        node = self._walk(self._root, request.path.split(b"/")[1:], values)
        if node is None:
            return error_response(404, "no_such_route", f"there is no {_shown(request.path)}; /docs lists all paths")
        matched = node.routes.get(method)
        if matched is None:
            allowed = ", ".join(sorted(node.routes))
            return error_response(
                405,
                "method_not_allowed",
                f"{_shown(request.path)} takes {allowed}",
                headers=((b"allow", allowed.encode()),),
            )
        names = [part[1:-1] for part in matched.path.split("/") if part.startswith("{")]
        params = request.params = dict(zip(names, values, strict=True))
        if len(request.path) <= _PATH_BYTES_MAX:
            if len(self.matched) >= _PATHS_MAX:
                self.matched.clear()
            self.matched[method, request.path] = (matched, params)
        return matched

    def _walk(self, node: _Node, parts: list[bytes], values: list[str]) -> _Node | None:
        """Return the node of a path, and add its parameters to `values`. None if no node matches."""
        for index, part in enumerate(parts):
            child = node.children.get(part)
            if child is not None and node.parameter is not None:
                # A name may equal the word of a sibling route: try the word first, then the name.
                met = len(values)
                found = self._walk(child, parts[index + 1 :], values)
                if found is not None:
                    return found
                del values[met:]
                child = None
            if child is None:
                child = node.parameter
                if child is None or not part:
                    return None
                if child.rest:
                    values.append("/".join(map(decoded, parts[index:])))
                    return child
                values.append(decoded(part))
            node = child
        return node if node.routes else None


def decoded(part: bytes) -> str:
    try:
        return unquote_to_bytes(part).decode() if b"%" in part else part.decode()
    except UnicodeDecodeError:
        raise InvalidRequest(f"{_shown(part)} in the path is not valid UTF-8") from None


def _shown(path: bytes) -> str:
    return path[:200].decode("latin-1")
