"""The compose file of examples/deploy: names that resolve, settings that the broker knows, and few privileges."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml

from fairlane.config import load_settings
from tests.docs.test_deploy import DEPLOY
from tests.docs.test_image import said

COMPOSE = yaml.safe_load((DEPLOY / "compose.yml").read_text())
SERVICES: dict[str, Any] = COMPOSE["services"]


def test_names_in_the_compose_file_resolve() -> None:
    broker, postgres = SERVICES["broker"], SERVICES["postgres"]
    context = (DEPLOY / broker["build"]["context"]).resolve()
    assert (context / broker["build"]["dockerfile"]).resolve() == (DEPLOY / "Dockerfile").resolve()
    for name, service in SERVICES.items():
        assert set(service.get("depends_on", {})) <= set(SERVICES), name
        assert {volume.partition(":")[0] for volume in service["volumes"]} <= set(COMPOSE["volumes"]), name
    for name in broker["depends_on"]:
        assert "healthcheck" in SERVICES[name], f"{name} is waited for until it is healthy"
    url = urlsplit(broker["environment"]["FAIRLANE_STORE"].replace("${POSTGRES_PASSWORD:?write it to .env}", "secret"))
    assert url.hostname == "postgres"
    assert (url.username, url.path) == (
        postgres["environment"]["POSTGRES_USER"],
        f"/{postgres['environment']['POSTGRES_DB']}",
    )


def test_the_broker_of_the_compose_file_is_started_with_settings_that_it_knows() -> None:
    broker = SERVICES["broker"]
    verb, *words = broker["command"]
    assert verb == "serve"
    flags = dict(zip(words[::2], words[1::2], strict=True))
    settings = load_settings({name.removeprefix("--").replace("-", "_"): value for name, value in flags.items()})
    [address] = broker["ports"]
    host, outside, inside = address.split(":")
    assert (host, int(outside)) == ("127.0.0.1", settings.port), "published to this machine only"
    assert inside in said("EXPOSE")[0].split()
    assert "broker" in settings.allowed_hosts, "other services reach it by its name"
    assert broker["volumes"] == [f"journal:{said('VOLUME')[0]}"], "the journal outlives the container"


@pytest.mark.parametrize("name", ["broker"])
def test_a_service_of_the_compose_file_has_few_rights(name: str) -> None:
    service = SERVICES[name]
    assert (service["read_only"], service["cap_drop"]) == (True, ["ALL"])
    assert service["security_opt"] == ["no-new-privileges:true"]
