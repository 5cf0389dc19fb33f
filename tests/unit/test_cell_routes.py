"""The routes of a store with several cells: every verb that a broker may call has one."""

from __future__ import annotations

import inspect
from typing import Any, get_type_hints

import pytest

from fairlane.model.ids import PartitionId, first_id
from fairlane.model.lease import LeaseId
from fairlane.store.cells.router import cell_named
from fairlane.store.cells.routes import HOME, ROUTES
from fairlane.store.contract.operations import BacklogClaim
from fairlane.store.contract.store import Store
from fairlane.store.contract.values import LaneAck, PopCall, Renewal
from fairlane.store.families.registry import StoreFamilies
from fairlane.store.postgres.messages import Messages

TOKEN = LeaseId.parse(f"{first_id(3)}.00000000-0000-7000-8000-000000000000")
INSIDE_A_CELL = {
    "groups.subscribe_in",
    "groups.end",
    "queues.declare",
    "specs.declare",
    "messages.push_on",
    "messages.ack_on",
    "messages.acks_on",
    "messages.pushes_on",
    "messages.lock",
}
"""Verbs that take a transaction, or that only the router calls."""


def families() -> dict[str, type[Any]]:
    hints = get_type_hints(Store)
    found = {name: hints[name] for name in ("operations", "scheduled")} | {"messages": Messages}
    source = inspect.getsource(StoreFamilies.__init__)
    words = [line.split("=")[0].strip().removeprefix("self.") for line in source.splitlines() if " = " in line]
    globals_ = StoreFamilies.__init__.__globals__
    for name in (word for word in words if not word.startswith("_")):
        kind = "GroupLimits" if name == "limits" else "".join(part.capitalize() for part in name.split("_"))
        found[name] = globals_[kind]
    return found


def verbs(family: type[Any]) -> set[str]:
    return {name for name, member in inspect.getmembers(family, inspect.isfunction) if not name.startswith("_")}


@pytest.mark.parametrize("name", families())
def test_every_verb_of_a_family_has_a_route(name: str) -> None:
    if name in HOME:
        return
    wanted = {verb for verb in verbs(families()[name]) if f"{name}.{verb}" not in INSIDE_A_CELL}
    assert wanted == set(ROUTES[name])


def test_every_family_is_routed_or_in_the_home() -> None:
    assert set(families()) == {*ROUTES, *HOME}


@pytest.mark.parametrize(
    "value",
    [
        first_id(3),
        PartitionId(3, 9),
        (PartitionId(3, 9), 17),
        TOKEN,
        Renewal(TOKEN, 10) if TOKEN else None,
        PopCall(queue_id=first_id(3), group_id=first_id(3), claims=[], partition=None),
        LaneAck(partition=PartitionId(3, 9), group_id=first_id(3), token=None),
        BacklogClaim(PartitionId(3, 9), 0, TOKEN.token) if TOKEN else None,
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_a_verb_is_called_with_names_its_cell(value: Any) -> None:
    assert cell_named(value) == 3
