"""A short run of `make fuzz`."""

from __future__ import annotations

import random
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import msgspec
import pytest

from tests.broker_process import broker_process
from tests.fuzz.run import LIVE, fuzz, guarded_broker

LETTERS = [
    *map(chr, range(256)),
    "/api/v1/",
    "/api/v1/history?minutes=",
    "?",
    "&",
    "%",
    "\U0001f680",
    "\ud800",
    "queues",
]


@pytest.mark.timeout(600)  # some twenty seconds, on a machine with nothing else to do
def test_every_answer_is_one_that_the_description_knows(tmp_path: Path) -> None:
    with broker_process(f"sqlite:///{tmp_path}/queue.db") as broker:
        done = fuzz(broker.url, cases=10, seed=1, phases=("fuzzing",))
    assert done.returncode == 0, done.stdout
    assert "generated" in done.stdout


@pytest.mark.timeout(600)
def test_a_broker_that_asks_for_credentials_answers_nobody_else_and_shows_no_tenant_what_another_made(
    tmp_path: Path,
) -> None:
    with guarded_broker(tmp_path) as (url, callers):
        done = fuzz(url, cases=1, seed=1, phases=("fuzzing",), callers=callers)
    assert done.returncode == 0, done.stdout
    assert "generated" in done.stdout


@pytest.mark.timeout(600)
def test_an_operation_that_answers_everybody_is_found(tmp_path: Path) -> None:
    """The broker was configured to require no credentials, and the same run finds that."""
    with guarded_broker(tmp_path, "--insecure-no-auth") as (url, callers):
        done = fuzz(url, cases=1, seed=1, phases=("fuzzing",), callers=callers, only="/api/v1/whoami")
    assert done.returncode == 1, done.stdout
    assert "API accepts requests without authentication" in done.stdout


def test_every_stream_begins_as_the_description_says(tmp_path: Path) -> None:
    """The status and headers must match the description. The test then closes the stream."""
    made = random.Random(1)
    with broker_process(f"sqlite:///{tmp_path}/queue.db") as broker:
        address = urlsplit(broker.url).netloc
        known = _asked(address, "/openapi.json")[LIVE]["get"]["responses"]
        statuses = set()
        for number in range(200):
            names = ["watch"] * (number % 12) + ["watch", made.choice(LETTERS)][: made.randrange(3)]
            values = ["".join(made.choices(LETTERS, k=made.randrange(4))) for _ in names]
            query = "&".join(f"{_quoted(name)}={_quoted(value)}" for name, value in zip(names, values, strict=True))
            connection = HTTPConnection(address, timeout=30)
            connection.request("GET", f"{LIVE}?{query}" if number % 3 else f"{LIVE}?watch=/api/v1/findings&{query}")
            answer = connection.getresponse()
            kind = str(answer.headers["content-type"])
            assert kind in known[str(answer.status)]["content"], (answer.status, kind, query)
            statuses.add(answer.status)
            assert answer.fp.readline() if answer.status == 200 else answer.read()
            answer.close()
            connection.close()
    assert {200, 400} <= statuses


def _quoted(text: str) -> str:
    return quote(text, safe="", errors="surrogatepass")


def _asked(address: str, path: str) -> Any:
    connection = HTTPConnection(address, timeout=30)
    connection.request("GET", path)
    found = msgspec.json.decode(connection.getresponse().read())["paths"]
    connection.close()
    return found
