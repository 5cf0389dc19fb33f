"""Pushes, pops and acks with the client that openapi-python-client generates. Run in its environment."""

import sys

from fairlane_api import Client
from fairlane_api.api.messages import ack, pop, push
from fairlane_api.api.queues import queues_show
from fairlane_api.models import Ack, Item, PushBody

client = Client(base_url=sys.argv[1])
body = PushBody(
    items=[Item(queue="generated", payload={"total": 42}, partition="p"), Item(queue="generated", payload=2)]
)
stored = push.sync(client=client, body=body)
assert [one.status for one in stored] == ["queued", "queued"], stored
popped = pop.sync("generated", client=client, batch=10, partitions=10)
assert sorted(str(one.data) for one in popped.messages) == ["2", "{'total': 42}"], popped
assert {one.transaction_id for one in popped.messages} == {one.transaction_id for one in stored}
for one in popped.messages:
    verdict = Ack(transaction_id=one.transaction_id, partition_id=one.partition_id, lease_id=one.lease_id)
    [acked] = ack.sync(client=client, body=verdict)
    assert (acked.success, acked.transaction_id, acked.queue_name) == (True, one.transaction_id, "generated"), acked
assert pop.sync("generated", client=client) is None
sys.stdout.write(queues_show.sync("generated", client=client).name + "\n")
