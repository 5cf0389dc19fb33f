"""Metrics by name: the docs, the alert rules and the Grafana board only use metrics that a broker has."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

from fairlane import Broker
from fairlane.http.app import HttpApp
from fairlane.http.metrics.exposition import exposition
from fairlane.http.metrics.families import OTHER
from fairlane.http.metrics.store import StoreMetrics
from fairlane.model.message import PushItem
from fairlane.runtime.peer_processes import PeerProcesses
from fairlane.wire.schedules import ScheduleOptions
from tests.conformance.backends import Backend, PostgresBackend, SqliteBackend
from tests.conformance.configurations import Configuration
from tests.http.wire import Wire
from tests.metrics import Named, sample, samples
from tests.until import until

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples/monitoring"
RULES = [rule for group in yaml.safe_load((EXAMPLES / "alerts.yml").read_text())["groups"] for rule in group["rules"]]
BOARD = json.loads((EXAMPLES / "board.json").read_text())
ROW = re.compile(r"^\| `((?:fairlane|process)_\w+)` \| (\w+) \| ([^|]*) \| (.+) \|$", re.MULTILINE)


def expressions(node: Any) -> Iterator[str]:
    """Return every PromQL expression of the board and of its variables."""
    if isinstance(node, dict):
        yield from (node[key] for key in ("expr", "query") if isinstance(node.get(key), str) and "(" in node[key])
        for value in node.values():
            yield from expressions(value)
    elif isinstance(node, list):
        for value in node:
            yield from expressions(value)


def named(expression: str) -> set[str]:
    return set(re.findall(r"\b(?:fairlane|process)_\w+", expression))


def labels_of(expression: str) -> dict[str, set[str]]:
    """Return the labels that an expression uses for each metric."""
    found: dict[str, set[str]] = {}
    for name, inside in re.findall(r"\b(fairlane_\w+)\{([^}]*)\}", expression):
        found.setdefault(name, set()).update(re.findall(r"(\w+)\s*(?:=~|!~|!=|=)", inside))
    return found


@pytest.fixture(params=["sqlite", "postgres18"])
def backend(request: pytest.FixtureRequest, tmp_path: Path) -> Backend:
    """A separate database, because all its queues are counted."""
    if request.param == "sqlite":
        return SqliteBackend(tmp_path / "queue.db")
    return PostgresBackend(request.getfixturevalue("postgres18"), Configuration("monitoring", postgres=18))


@pytest.fixture
async def text(tmp_path: Path) -> AsyncIterator[str]:
    """A scrape of one of two processes, with a journal and some of everything."""
    async with Broker.open(tmp_path / "queue.db", journal=str(tmp_path / "journal")) as broker:
        app = HttpApp(broker, peer_processes=PeerProcesses(tmp_path, 0, 2))
        await broker.queues.configure("limited", max_size=10)
        await broker.queues.configure("stopped", retry_limit=0, on_exhausted="block")
        await broker.push("stopped", 1)
        await broker.nack(await broker.pop("stopped"))
        await broker.push("limited", 1)
        await broker.ack(await broker.pop("limited"))
        await broker.schedules.define("tick", ScheduleOptions(queue="limited", every_seconds=60))
        broker.process.telemetry.webhooks["h", "queued"] += 1
        broker.process.telemetry.command("c").record("completed", 0.1)
        yield (await exposition(app)).decode()


@pytest.fixture
def families(text: str) -> dict[str, Metric]:
    return {
        f"{one.name}_total" if one.type == "counter" else one.name: one for one in text_string_to_metric_families(text)
    }


@pytest.fixture
def series(families: dict[str, Metric]) -> dict[str, set[str]]:
    """Return the names of samples, each with its labels."""
    found: dict[str, set[str]] = {}
    for family, metric in families.items():
        suffixes = ("_bucket", "_sum", "_count") if metric.type == "histogram" else ("",)
        for name in (family + suffix for suffix in suffixes):
            found[name] = {label for one in metric.samples if one.name == name for label in one.labels}
    return found


def test_the_table_of_the_docs_is_what_a_broker_shows(families: dict[str, Metric]) -> None:
    table = {name: (kind, labels, meaning) for name, kind, labels, meaning in ROW.findall(_page())}
    assert sorted(table) == sorted(families)
    for name, (kind, labels, meaning) in table.items():
        metric = families[name]
        assert (kind, meaning) == (metric.type, metric.documentation), name
        shown = {label for one in metric.samples for label in one.labels} - {"le", "worker"}
        assert not metric.samples or shown == set(re.findall(r"`(\w+)`", labels)), name


def _page() -> str:
    return (ROOT / "docs/monitoring.md").read_text()


def test_names_follow_the_conventions_of_prometheus(families: dict[str, Metric]) -> None:
    for name, metric in families.items():
        assert metric.documentation.endswith("."), name
        assert name.endswith("_total") == (metric.type == "counter"), name
        assert not re.search(r"_(ms|milliseconds|minutes|kb|megabytes|percent|count|sum|bucket)(_|$)", name), name
        if metric.type == "histogram":
            assert name.endswith("_seconds")


def _promtool(*arguments: str, given: str | None = None) -> None:
    tool = shutil.which("promtool")
    if tool is None:
        pytest.skip("no promtool; `make tools` installs it where it can")
    ran = subprocess.run([tool, *arguments], input=given, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_promtool_finds_nothing_to_say_of_a_scrape(text: str) -> None:
    _promtool("check", "metrics", given=text)


def test_every_alert_fires_on_its_series_and_not_before() -> None:
    _promtool("test", "rules", str(EXAMPLES / "alerts_test.yml"))
    proven = re.findall(r'alertname="(\w+)"', (EXAMPLES / "alerts_test.yml").read_text())
    assert set(proven) == {rule["alert"] for rule in RULES}


def test_promtool_takes_the_rules_and_the_configuration() -> None:
    _promtool("check", "rules", "--lint-fatal", str(EXAMPLES / "alerts.yml"))
    _promtool("check", "config", str(EXAMPLES / "prometheus.yml"))


def test_promtool_takes_every_expression_of_the_board(tmp_path: Path) -> None:
    asked = [one for one in expressions(BOARD) if not one.startswith("label_values(")]
    rules = [
        {"record": f"board:{number}", "expr": one.replace("$__rate_interval", "1m").replace("$__interval", "1m")}
        for number, one in enumerate(asked)
    ]
    assert len(rules) > 30
    file = tmp_path / "board.yml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "board", "rules": rules}]}))
    _promtool("check", "rules", str(file))


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule["alert"])
async def test_an_alert_asks_for_what_a_broker_shows(rule: dict[str, Any], series: dict[str, set[str]]) -> None:
    assert named(rule["expr"]) <= series.keys()
    for name, labels in labels_of(rule["expr"]).items():
        assert labels <= series[name], name
    assert {"summary", "description"} == set(rule["annotations"])
    assert rule["labels"]["severity"] in ("warning", "critical")
    for mentioned in re.findall(r"docs/\w+\.md", str(rule["annotations"])):
        assert (ROOT / mentioned).exists()


async def test_the_board_asks_for_what_a_broker_shows(series: dict[str, set[str]]) -> None:
    asked = list(expressions(BOARD))
    for expression in asked:
        assert named(expression), expression
        assert named(expression) <= series.keys(), expression
        for name, labels in labels_of(expression).items():
            assert labels - {"instance"} <= series[name], expression
    panels = [panel for panel in BOARD["panels"] if panel["type"] != "row"]
    assert all(panel["title"] and panel["targets"] for panel in panels)
    assert len({panel["id"] for panel in BOARD["panels"]}) == len(BOARD["panels"])


def test_the_board_is_one_that_grafana_takes() -> None:
    """Check the board against Grafana's schema of dashboards."""
    assert BOARD["schemaVersion"] >= 36, "older ones are migrated when they are loaded"
    assert {"title", "uid", "time", "templating", "annotations"} <= BOARD.keys()
    taken: set[tuple[int, int]] = set()
    for panel in BOARD["panels"]:
        place = panel["gridPos"]
        assert 0 <= place["x"] < place["x"] + place["w"] <= 24, panel["title"]
        columns, rows = range(place["x"], place["x"] + place["w"]), range(place["y"], place["y"] + place["h"])
        cells = {(column, row) for column in columns for row in rows}
        assert not cells & taken, f"{panel['title']} lies over another panel"
        taken |= cells
        if panel["type"] != "row":
            assert {"defaults", "overrides"} <= panel["fieldConfig"].keys(), panel["title"]
            assert len({one["refId"] for one in panel["targets"]}) == len(panel["targets"]), panel["title"]
            assert "type" in panel["datasource"], panel["title"]
    for variable in BOARD["templating"]["list"]:
        assert {"name", "type"} <= variable.keys()


def test_the_page_names_every_alert() -> None:
    assert [rule["alert"] for rule in RULES] == re.findall(r"^\| `(Fairlane\w+)`", _page(), re.MULTILINE)


async def counted(metrics: StoreMetrics) -> dict[Named, float]:
    """Wait for the counts: a busy machine may take longer than a scrape waits."""

    async def told() -> dict[Named, float] | None:
        found = samples(await metrics.text() or b"")
        return found if sample("queues") in found else None

    found: dict[Named, float] = await until(told)
    return found


async def test_queues_beyond_the_bound_are_added_up(wire: Wire) -> None:
    first, second, third, group = wire.name(), wire.name(), wire.name(), {"consumerGroup": "g"}
    await wire.push(first, 1)
    await wire.push(second, 1, 2)
    await wire.push(third, 1, 2, 3)
    for queue in (first, second, third):
        await wire.pop(queue, batch=1, **group)
    found = await counted(StoreMetrics(wire.app.broker, series_max=1))
    queues = {dict(labels)["queue"] for name, labels in found if name == "fairlane_queue_messages"}
    assert queues == {first, OTHER}, "the first that was made stays"
    assert found[sample("queues")] == 3
    assert found[sample("queue_messages", queue=OTHER, state="pending")] == 3
    assert found[sample("queue_messages", queue=OTHER, state="processing")] == 2
    assert found[sample("queue_oldest_age_seconds", queue=OTHER)] > 0
    assert found[sample("group_lag_messages", queue=first, group="g")] == 1
    assert found[sample("group_lag_messages", queue=OTHER, group=OTHER)] == 5


async def test_each_queue_has_counters_of_its_own(tmp_path: Path) -> None:
    async with Broker.open(tmp_path / "queue.db") as broker:
        app = HttpApp(broker)
        await broker.queues.configure("mail", retry_limit=0)
        await broker.push_many([PushItem(queue="mail", payload=b"1") for _ in range(3)])
        await broker.push("orders", 1)
        taken = await broker.pop("mail", batch=3)
        await broker.ack(taken[:2])
        await broker.nack(taken[2])
        found = samples(await exposition(app))

    def of(event: str, queue: str) -> float:
        return found[sample(f"queue_messages_{event}_total", queue=queue)]

    events = ("pushed", "popped", "acked", "failed", "dead_lettered", "expired")
    assert [of(event, "mail") for event in events] == [3, 3, 3, 1, 1, 0]
    assert [of(event, "orders") for event in events] == [1, 0, 0, 0, 0, 0]
    assert found[sample("queue_time_in_queue_seconds_count", queue="mail")] == 1
    assert found[sample("queue_time_in_queue_seconds_bucket", queue="mail", le="+Inf")] == 1


async def test_counters_beyond_the_bound_are_added_up(tmp_path: Path) -> None:
    async with Broker.open(tmp_path / "queue.db") as broker:
        app = HttpApp(broker, metrics_series_max=1)
        for queue in ("first", "second", "third"):
            await broker.push(queue, 1)
        found = samples(await exposition(app))
    pushed = {
        dict(labels)["queue"]: value for (name, labels), value in found.items() if "queue_messages_pushed" in name
    }
    assert pushed == {"first": 1, OTHER: 2}


async def test_findings_and_stopped_lanes_are_metrics(text: str) -> None:
    found = samples(text)
    assert found[sample("findings", kind="lanes_stopped", severity="critical", queue="stopped", snoozed="false")] == 1
    lanes = {
        dict(labels)["state"]: value
        for (name, labels), value in found.items()
        if name == "fairlane_group_lanes" and dict(labels)["queue"] == "stopped"
    }
    assert lanes == {"blocked": 1, "parked": 0, "paused": 0, "retrying": 0}


async def test_a_queue_of_the_others_name_is_one_of_them(wire: Wire) -> None:
    await wire.push(wire.name(), 1)
    await wire.push(OTHER, 1, 2)
    found = await counted(StoreMetrics(wire.app.broker))
    assert found[sample("queue_messages", queue=OTHER, state="pending")] == 2
