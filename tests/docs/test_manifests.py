"""The manifests of examples/deploy: known fields only, names that resolve, and few privileges."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
import yaml
from lightkube.models import apps_v1, core_v1, networking_v1, policy_v1

from fairlane.config import load_settings
from tests.docs.test_deploy import DEPLOY

KINDS = {
    ("apps/v1", "StatefulSet"): apps_v1.StatefulSet,
    ("apps/v1", "Deployment"): apps_v1.Deployment,
    ("v1", "Service"): core_v1.Service,
    ("policy/v1", "PodDisruptionBudget"): policy_v1.PodDisruptionBudget,
    ("networking.k8s.io/v1", "NetworkPolicy"): networking_v1.NetworkPolicy,
}
PROBES = ("startupProbe", "livenessProbe", "readinessProbe")


def manifests() -> Iterator[dict[str, Any]]:
    for path in sorted(DEPLOY.glob("*.yaml")):
        yield from yaml.safe_load_all(path.read_text())


def named(kind: str, name: str) -> Any:
    [found] = [one for one in manifests() if (one["kind"], one["metadata"]["name"]) == (kind, name)]
    return found["spec"]


def unknown(manifest: dict[str, Any]) -> list[str]:
    """Return the fields that its kind does not have. Raises ValidationError for a wrong type or a missing field."""
    read = msgspec.convert(manifest, KINDS[manifest["apiVersion"], manifest["kind"]])
    return list(lost(manifest, msgspec.to_builtins(read), manifest["kind"]))


def lost(given: Any, read: Any, path: str) -> Iterator[str]:
    """Return where parsing dropped a field, as it does with unknown ones."""
    if isinstance(given, dict):
        for name, value in given.items():
            if name in read:
                yield from lost(value, read[name], f"{path}.{name}")
            else:
                yield f"{path}.{name}"
    elif isinstance(given, list):
        for number, (one, other) in enumerate(zip(given, read, strict=True)):
            yield from lost(one, other, f"{path}[{number}]")
    elif given != read:
        yield path


def test_kubernetes_knows_every_field_of_the_manifests() -> None:
    found = [field for manifest in manifests() for field in unknown(manifest)]
    assert found == []


def test_a_field_that_kubernetes_does_not_know_is_found() -> None:
    manifest = next(one for one in manifests() if one["kind"] == "StatefulSet")
    [container] = manifest["spec"]["template"]["spec"]["containers"]
    for place, name in (
        (manifest["spec"], "replica"),
        (manifest["spec"]["template"]["spec"]["securityContext"], "runAsNonroot"),
        (container["securityContext"], "readonlyRootFilesystem"),
        (container["livenessProbe"]["httpGet"], "url"),
        (container["volumeMounts"][0], "readonly"),
    ):
        place[name] = True
        assert [one.rpartition(".")[2] for one in unknown(manifest)] == [name]
        del place[name]
    wrong = copy.deepcopy(manifest)
    wrong["spec"]["replicas"] = "two"
    with pytest.raises(msgspec.ValidationError):
        unknown(wrong)
    del manifest["spec"]["selector"]
    with pytest.raises(msgspec.ValidationError):
        unknown(manifest)


def test_manifests_name_what_they_have() -> None:
    """Labels, ports, volumes and secrets that are referenced exist under that name."""
    broker = named("StatefulSet", "fairlane")
    [container] = broker["template"]["spec"]["containers"]
    labels = broker["template"]["metadata"]["labels"]
    policy, service = named("NetworkPolicy", "fairlane"), named("Service", "fairlane")
    assert labels == broker["selector"]["matchLabels"] == service["selector"] == policy["podSelector"]["matchLabels"]
    assert broker["serviceName"] == "fairlane"
    ports = {one["name"]: one["containerPort"] for one in container["ports"]}
    assert {one["targetPort"]: one["port"] for one in service["ports"]} == ports
    assert {port["port"] for rule in policy["ingress"] for port in rule["ports"]} == set(ports)
    for probe in PROBES:
        assert container[probe]["httpGet"] == {"path": "/livez", "port": "hooks", "scheme": "HTTPS"}
    flags = dict(one.removeprefix("--").split("=", 1) for one in container["args"][1:])
    mounts = {one["name"]: one["mountPath"] for one in container["volumeMounts"]}
    assert flags.pop("config") == f"{mounts['settings']}/fairlane.toml"
    settings = load_settings({name.replace("-", "_"): value for name, value in flags.items()})
    assert settings.hooks_listen == f"{settings.host}:{ports['hooks']}"
    assert settings.port == ports["api"]
    assert settings.data_dir == mounts["data"], "the journal outlives the pod"
    assert (settings.tls_cert, settings.tls_key) == (f"{mounts['tls']}/tls.crt", f"{mounts['tls']}/tls.key")


def test_workers_reach_the_broker_with_a_key_in_a_file() -> None:
    pod = named("Deployment", "shop-worker")["template"]
    [container] = pod["spec"]["containers"]
    policy = named("NetworkPolicy", "fairlane")
    [api] = [rule for rule in policy["ingress"] if {"port": "api"} in rule["ports"]]
    [clients] = [one["podSelector"]["matchLabels"] for one in api["from"]]
    assert clients.items() <= pod["metadata"]["labels"].items()
    given = {one["name"]: one["value"] for one in container["env"]}
    [api_port] = [one["port"] for one in named("Service", "fairlane")["ports"] if one["name"] == "api"]
    assert given["FAIRLANE_SERVER"] == f"https://fairlane:{api_port}"
    mounts = {one["name"]: one["mountPath"] for one in container["volumeMounts"]}
    assert given["FAIRLANE_KEY_FILE"].startswith(f"{mounts['secret']}/")
    assert given["FAIRLANE_CA_FILE"].startswith(f"{mounts['secret']}/")


@pytest.mark.parametrize(("kind", "name"), [("StatefulSet", "fairlane"), ("Deployment", "shop-worker")])
def test_pods_have_few_rights_and_their_secrets_as_files(kind: str, name: str) -> None:
    made = named(kind, name)
    pod, [container] = made["template"]["spec"], made["template"]["spec"]["containers"]
    assert pod["automountServiceAccountToken"] is False
    rights = pod["securityContext"]
    assert rights["runAsNonRoot"] is True
    assert rights["runAsUser"] == rights["runAsGroup"] == rights["fsGroup"] == 65532
    assert rights["seccompProfile"] == {"type": "RuntimeDefault"}
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert set(container["resources"]) == {"requests", "limits"}
    assert not any("valueFrom" in one for one in container.get("env", []))
    mounts = {one["name"]: one for one in container["volumeMounts"]}
    claims = {one["metadata"]["name"] for one in made.get("volumeClaimTemplates", [])}
    assert set(mounts) == {one["name"] for one in pod["volumes"]} | claims
    secrets = [one for one in pod["volumes"] if "secret" in one]
    assert secrets
    for one in secrets:
        assert one["secret"]["defaultMode"] == 0o440
        assert mounts[one["name"]]["readOnly"] is True
