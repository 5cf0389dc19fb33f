"""The samples of a scrape, parsed by Prometheus's own client library."""

from __future__ import annotations

from prometheus_client.parser import text_string_to_metric_families

Named = tuple[str, frozenset[tuple[str, str]]]


def sample(name: str, **labels: str) -> Named:
    return f"fairlane_{name}", frozenset(labels.items())


def samples(text: bytes | str) -> dict[Named, float]:
    """Return the samples by name and labels. No two may have both in common."""
    families = list(text_string_to_metric_families(text if isinstance(text, str) else text.decode()))
    assert len(families) == len({family.name for family in families})
    found = [((one.name, frozenset(one.labels.items())), one.value) for family in families for one in family.samples]
    assert len(found) == len(dict(found))
    return dict(found)
