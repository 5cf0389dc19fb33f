"""The broker decides which hosts may be called: a spec that calls other hosts is not applied."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from fairlane.broker.broker import Broker
from fairlane.errors import InvalidRequest
from tests.spec.samples import compiled


def _document(url: str) -> bytes:
    text = f'app A {{ command C {{ input {{ id: int }} run: http POST "{url}" secret_env: "CALLS_WEBHOOK_SECRET" }} }}'
    return msgspec.json.encode(compiled(text).spec)


@pytest.mark.parametrize(
    ("url", "allow"),
    [
        ("http://127.0.0.1:8080/x", "127.0.0.1:8080"),
        ("http://incidents.internal/x", "incidents.internal"),
        ("https://10.1.2.3/x", "10.1.0.0/16"),
        ("https://[::1]:8080/x", "[::1]:8080"),
    ],
)
async def test_a_spec_that_calls_inside_is_applied_where_that_is_allowed_by_name(
    url: str, allow: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CALLS_WEBHOOK_SECRET", "whsec_" + "x" * 40)
    async with Broker.open(f"sqlite:///{tmp_path}/closed.db") as closed:
        with pytest.raises(InvalidRequest, match="outbound_allow"):
            await closed.specs.apply(_document(url))
    async with Broker.open(f"sqlite:///{tmp_path}/open.db", outbound_allow=allow) as broker:
        applied = await broker.specs.apply(_document(url))
        assert applied.app == "A"
