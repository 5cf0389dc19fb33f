"""The published queen-mq clients work unchanged: each scenario is played by each version, on each store."""

from __future__ import annotations

import pytest

from tests.broker_process import BrokerProcess
from tests.queen.environments import NEWEST, OLDEST, VERSIONS
from tests.queen.peer import SCENARIOS, Peer

ONLY = {"oldest": OLDEST, "newest": NEWEST}
"""Modules about requests that only one version can make."""


def modules() -> list[tuple[str, str]]:
    return [
        (version, path.stem)
        for version in VERSIONS
        for path in sorted(SCENARIOS.glob("*.py"))
        if path.stem != "play" and ONLY.get(path.stem, version) == version
    ]


@pytest.mark.parametrize(("version", "module"), modules())
def test_a_published_client_works_unchanged(
    version: str, module: str, peers: dict[str, Peer], broker: BrokerProcess, queue: str
) -> None:
    assert peers[version].play(module, url=broker.url, queue=queue) > 0
