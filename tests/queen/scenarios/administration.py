"""Requests of the admin part of the client."""

from __future__ import annotations


async def queues_and_messages_can_be_looked_at(client, queue):
    await client.queue(queue).namespace(f"{queue}-ns").task("ship").create()
    await client.queue(queue).partition("lane").push([{"data": {"n": 1}, "transactionId": "t1"}])
    admin = client.admin
    assert queue in [one["name"] for one in (await admin.list_queues(limit=1000))["queues"]]
    detail = await admin.get_queue(queue)
    assert (detail["name"], detail["namespace"], detail["task"]) == (queue, f"{queue}-ns", "ship")
    assert detail["totals"]["pending"] == 1, detail
    assert f"{queue}-ns" in [one["namespace"] for one in (await admin.get_namespaces())["namespaces"]]
    assert "ship" in [one["task"] for one in (await admin.get_tasks())["tasks"]]
    lanes = (await admin.get_partitions(queue=queue))["partitions"]
    assert "lane" in [lane["name"] for lane in lanes], lanes
    [listed] = (await admin.list_messages(queue=queue))["messages"]
    assert (listed["transactionId"], listed["status"]) == ("t1", "pending"), listed
    message = await admin.get_message(listed["partitionId"], "t1")
    assert message["payload"] == {"n": 1}
    assert (await admin.delete_message(listed["partitionId"], "t1"))["success"] is True
    assert await client.queue(queue).partition("lane").wait(False).pop() == []


async def a_message_committed_at_delivery_shows_its_group(client, queue):
    await client.queue(queue).push([{"data": 1, "transactionId": "t1"}])
    [message] = await client.queue(queue).wait(False).pop()
    await client.ack(message)
    detail = await client.admin.get_message(message["partitionId"], "t1")
    [group] = detail["consumerGroups"]
    assert (group["consumed"], group["leaseExpiresAt"]) == (True, None), detail


async def every_report_is_answered(client, queue):
    await client.queue(queue).push([{"data": 1}])
    admin = client.admin
    reports = [
        admin.get_overview(),
        admin.get_status(),
        admin.get_queue_stats(limit=10),
        admin.get_queue_detail(queue),
        admin.get_analytics(interval="hour"),
        admin.get_system_metrics(),
        admin.get_worker_metrics(),
        admin.health(),
    ]
    for report in reports:
        answer = await report
        assert isinstance(answer, dict), answer
        assert answer
    await admin.metrics()


async def what_only_the_older_client_calls_is_answered_too(client, queue):
    admin = client.admin
    if not hasattr(admin, "get_maintenance_mode"):
        return
    await client.queue(queue).push([{"data": n, "transactionId": f"t{n}"} for n in range(3)])
    [message] = await client.queue(queue).wait(False).pop()
    await client.ack(message)
    await admin.move_message_to_dlq(message["partitionId"], "t1")
    assert (await client.queue(queue).dlq().get())["total"] == 1
    await admin.clear_queue(queue)
    assert await client.queue(queue).wait(False).pop() == []
    assert isinstance(await admin.get_postgres_stats(), dict)
    assert (await admin.get_maintenance_mode())["maintenanceMode"] is False
