"""The application: routes over one engine. Every error becomes an answer here, and nowhere else."""

from __future__ import annotations

from fairlane.broker import Broker
from fairlane.errors import FairlaneError
from fairlane.http.message import Request, Response
from fairlane.http.problems import problem
from fairlane.http.router import Router
from fairlane.http.routes import ROUTES


class App:
    """What endpoints are given: the broker and its engine."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.engine = broker.engine
        self.tenant = broker.tenant
        self.router = Router(ROUTES)

    async def handle(self, request: Request) -> Response:
        try:
            found = self.router.match(request)
            if isinstance(found, Response):
                return found
            return await found.endpoint(self, request)
        except FairlaneError as error:
            return problem(error)
        except Exception as error:  # the request's boundary: one request's mistake is not the connection's
            return problem(error)
