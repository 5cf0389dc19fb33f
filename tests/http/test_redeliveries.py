"""Redeliveries of webhooks: the answer reports the true state, and a signed redelivery replays a dead letter."""

from __future__ import annotations

from typing import Any

import pytest

from fairlane.model.names import COMMANDS
from tests.http.test_webhooks import BODY, SECRET, Inbox, headers_of
from tests.http.wire import Wire

SIGNED = 'verify: github { secret_env: "HOOK_SECRET" }'
QUEUE = "queue Q% { delivery { max_attempts: 1 } }"
MAPPED = "queue Q% { delivery { max_attempts: 1 }  map_to: command Ticket.Open { id: payload.incident.id } }"


@pytest.fixture(autouse=True)
def secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOOK_SECRET", SECRET)


async def _inbox(wire: Wire, queue: str, hook: str) -> Inbox:
    return await Inbox(wire).apply(f"{queue} webhook W% {{ queue: Q%  {hook} }}")


async def _send(inbox: Inbox, status: int) -> Any:
    return (await inbox.send("W", BODY, headers_of("github", BODY))).ok(status)


async def _fail(wire: Wire, queue: str, group: str | None = None) -> None:
    [message] = await wire.pop(queue, **({"consumerGroup": group} if group else {}))
    await wire.ack([message], "failed", error="no such table")


async def test_a_signed_redelivery_of_a_dead_letter_replays_it(wire: Wire) -> None:
    inbox = await _inbox(wire, QUEUE, SIGNED)
    first = await _send(inbox, 202)
    await _fail(wire, inbox.queue)
    replayed = await _send(inbox, 202)
    assert replayed == first | {"replayed": True, "message_id": replayed["message_id"]}
    assert replayed["message_id"] != first["message_id"]
    assert await _send(inbox, 202) == replayed, "it waits, and nothing more is stored"
    [message] = await wire.pop(inbox.queue)
    assert (message["id"], message["data"]["payload"]["incident"]["id"]) == (replayed["message_id"], "i-1")
    await wire.ack([message], result={"ticket": 7})
    done = await _send(inbox, 200)
    assert done == {
        "processed": True,
        "replayed": True,
        "idempotency_key": first["idempotency_key"],
        "message_id": replayed["message_id"],
        "result": {"ticket": 7},
    }
    assert inbox.counted("W") == {"queued": 1, "replayed": 1, "duplicate": 1, "processed": 1}


async def test_a_replay_that_is_given_up_as_well_is_replayed_by_the_next_redelivery(wire: Wire) -> None:
    inbox = await _inbox(wire, QUEUE, SIGNED)
    await _send(inbox, 202)
    ids = set()
    for _ in range(3):
        await _fail(wire, inbox.queue)
        ids.add((await _send(inbox, 202))["message_id"])
    assert len(ids) == 3


@pytest.mark.parametrize("hook", [f"{SIGNED}  redelivery: ignore", ""])
async def test_a_redelivery_that_may_not_replay_is_told_of_the_dead_letter(wire: Wire, hook: str) -> None:
    """Anybody could send an unsigned redelivery."""
    inbox = await _inbox(wire, QUEUE, hook)
    first = await _send(inbox, 202)
    await _fail(wire, inbox.queue)
    for _ in range(2):
        assert await _send(inbox, 200) == {
            "dead_letter": True,
            "replayed": False,
            "error": "no such table",
            "idempotency_key": first["idempotency_key"],
            "message_id": first["message_id"],
        }
    assert await wire.pop(inbox.queue) == []
    [letter] = (await wire.get("/api/v1/dlq", queue=inbox.queue)).ok()["messages"]
    (await wire.post("/api/v1/dlq/replay", body={"queue": inbox.queue, "ids": [letter["id"]]})).ok()
    [message] = await wire.pop(inbox.queue)
    await wire.ack([message], result=1)
    done = await _send(inbox, 200)
    assert (done["processed"], done["replayed"], done["result"]) == (True, True, 1)


async def test_only_the_group_of_the_command_says_whether_it_was_processed(wire: Wire) -> None:
    inbox = await _inbox(wire, MAPPED, SIGNED)
    first = await _send(inbox, 202)
    [message] = await wire.pop(inbox.queue, consumerGroup="analytics")
    await wire.ack([message], result="seen")
    assert await _send(inbox, 202) == first, "another group has read it, and the command has not run"
    [message] = await wire.pop(inbox.queue, consumerGroup=COMMANDS)
    await wire.ack([message], result={"ticket": 7})
    assert (await _send(inbox, 200))["result"] == {"ticket": 7}


async def test_a_result_of_the_queues_own_group_is_the_answer_until_the_command_has_one(wire: Wire) -> None:
    inbox = await _inbox(wire, MAPPED, SIGNED)
    first = await _send(inbox, 202)
    [looked] = await wire.pop(inbox.queue)
    await wire.ack([looked], result={"created": True})
    done = await _send(inbox, 200)
    assert (done["message_id"], done["result"]) == (first["message_id"], {"created": True})
    [message] = await wire.pop(inbox.queue, consumerGroup=COMMANDS)
    assert (await _send(inbox, 200))["result"] == {"created": True}
    await wire.ack([message], result={"ticket": 7})
    assert (await _send(inbox, 200))["result"] == {"ticket": 7}


async def test_an_ack_without_a_result_in_the_queues_own_group_processes_no_command(wire: Wire) -> None:
    inbox = await _inbox(wire, MAPPED, SIGNED)
    first = await _send(inbox, 202)
    await wire.ack(await wire.pop(inbox.queue))
    assert await _send(inbox, 202) == first


async def test_a_dead_letter_of_another_group_is_left_to_it(wire: Wire) -> None:
    inbox = await _inbox(wire, MAPPED, SIGNED)
    first = await _send(inbox, 202)
    await _fail(wire, inbox.queue, "analytics")
    assert await _send(inbox, 202) == first


async def test_the_result_of_a_message_is_that_of_its_replay(wire: Wire) -> None:
    inbox = await _inbox(wire, QUEUE, SIGNED)
    first = await _send(inbox, 202)
    await _fail(wire, inbox.queue)
    path = f"/api/v1/queues/{inbox.queue}/results/W{inbox.tag}:{first['idempotency_key']}"
    found = (await wire.get(path)).ok()
    assert (found["status"], found["error"], found["replayedAs"]) == ("dead_letter", "no such table", None)
    new = (await _send(inbox, 202))["message_id"]
    found = (await wire.get(path)).ok()
    assert (found["status"], found["replayedAs"]) == ("pending", new)
    [message] = await wire.pop(inbox.queue)
    await wire.ack([message], result=[1])
    found = (await wire.get(path)).ok()
    assert (found["status"], found["result"], found["replayedAs"]) == ("completed", [1], new)
