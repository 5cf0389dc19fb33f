"""Requests that only the oldest client can make. It runs alone, because it pauses the whole broker."""

from __future__ import annotations


async def deliveries_stop_while_they_are_paused(client, queue):
    admin = client.admin
    try:
        assert (await admin.set_pop_maintenance_mode(True))["popMaintenanceMode"] is True
        await client.queue(queue).push([{"data": "kept"}])
        assert await client.queue(queue).wait(False).pop() == []
    finally:
        await admin.set_pop_maintenance_mode(False)
    assert [message["data"] for message in await client.queue(queue).wait(False).pop()] == ["kept"]
    assert (await admin.get_pop_maintenance_mode())["popMaintenanceMode"] is False
