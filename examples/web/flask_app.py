"""A Flask application that takes orders, and an app that a worker of its own runs.

flask --app flask_app run
fairlane worker run flask_app:jobs
"""

import os

from flask import Flask, request

from fairlane import App
from fairlane.blocking import Client
from fairlane.errors import Unavailable

# Made once and used by all threads. Each process that a server forks opens its own connections.
client = Client(os.environ.get("FAIRLANE_SERVER", "http://127.0.0.1:6632"))
jobs = App("shop")
web = Flask(__name__)


@jobs.command("price", max_attempts=3)
def price(order: dict[str, int]) -> dict[str, int]:
    return {"total": 42 * order["items"]}


@web.post("/orders/<customer>")
def take(customer: str) -> tuple[dict[str, str], int]:
    pushed = client.push("price", request.get_json(), partition=customer)
    return {"id": pushed.transaction_id}, 202


@web.get("/orders/<customer>/<id>")
def show(customer: str, id: str) -> tuple[dict[str, int], int] | tuple[dict[str, str], int]:
    try:
        return client.result("price", id, partition=customer, timeout=20), 200
    except Unavailable:
        return {"error": "the order is not handled yet"}, 503
