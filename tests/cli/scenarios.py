"""Command lines whose outputs are compared with `golden/`: a story for each command group, with each of its commands.

A line that begins with `|` reads the output of the line before it. `{1}` is the first id that was printed.
"""

from __future__ import annotations

SPEC = """app Shop {
  queue Orders {
    message_type { id: string  total: int }
    map_to: command Ship { id: id }
  }
  queue Shipped {}
  command Ship { input { id: string }  run: queue Shipped }
  webhook Paid { queue: Shipped  verify: github { secret_env: "SHOP_SECRET" }  idempotency: header "X-Id" }
}
"""

STORIES = {
    "verbs": """
        pop orders
        push orders '{"total": 42}' --partition customer-7 --id first
        push orders '{"total": 42}' --partition customer-7 --id first
        push orders '{"total": 43}' --partition customer-8 --id later --delay-ms 60000
        push orders --file orders.jsonl
        push orders '{total}'
        tail orders
        tail orders -n 1
        pop orders --batch 9 --no-ack --json
        | ack --status completed
        pop orders
        ack 0-1 first --status failed --error 'no such card'
        ack
        grant-enqueue
        grant-enqueue shop --queue orders
        grant-enqueue --revoke
        status
        top
        completion bash
    """,
    "verify": """
        verify --list-faults
        verify --minutes -1
        verify --store nowhere
        verify --store sqlite:///:memory:
        verify --report nowhere/report.html
        verify --faults earthquake
        verify --store queue.db
    """,
    "backup": """
        push orders '{"total": 42}'
        backup moved.db --store queue.db --data-dir .
        backup moved.db --store queue.db --data-dir .
        backup moved.db --check
        backup orders.jsonl --check
        backup more.db --store nothing.db
        backup more.db --store postgresql://db/queues
        restore moved.db --store queue.db
        restore moved.db --store queue.db --data-dir elsewhere --overwrite
        restore moved.db --store other.db --data-dir elsewhere
        restore moved.db --store other.db --data-dir elsewhere --overwrite
        export orders --output orders.ndjson --store queue.db
        export orders --output orders.ndjson --store queue.db
        export nothing --store queue.db
        import orders.ndjson --store queue.db
        import orders.ndjson --store fresh.db
        import orders.ndjson --store fresh.db
        import orders.jsonl --store fresh.db
        migrate --from queue.db --to postgresql://127.0.0.1:1/queues
        migrate --from other.db --to more.db
        migrate --from nothing.db --to postgresql://127.0.0.1:1/queues
        mirror orders --from http://127.0.0.1:1 --to http://127.0.0.1:1
    """,
    "queue": """
        queue list
        queue create orders --lease-seconds 60 --retry-limit 2 --max-size 1000 --set retry_jitter=false
        queue create orders
        queue set orders max_size=5000 retry_delay_ms=250
        queue set orders max_sise=1
        push orders 1 --partition customer-7 --id first
        push orders 2 --partition customer-8
        push orders 3 --delay-ms 60000 --id later
        push invoices 1
        pop orders --no-ack --partition customer-8
        queue list
        queue show orders
        queue show nothing
        queue history nothing
        queue leases
        queue leases invoices
        queue scheduled orders
        queue scheduled invoices
        queue cancel orders later
        queue cancel orders later
        queue pause orders --partition customer-7
        queue explain orders customer-7
        queue explain orders customer-8
        queue resume orders --partition customer-7
        queue resume orders --partition customer-7
        queue resume orders --lanes
        queue create stuck --retry-limit 0 --set on_exhausted=block
        push stuck 1 --partition 'customer 1' --id poison
        push stuck 2 --partition 'customer 1' --id next
        push stuck 3 --partition well
        pop stuck --partition 'customer 1' --no-ack --json
        | ack --status failed --error 'no such card'
        queue lanes stuck
        queue lanes stuck --state blocked
        queue lanes stuck --state parked
        queue explain stuck 'customer 1'
        queue resume stuck --skip
        queue resume stuck --skip --partition well
        queue explain stuck 'customer 1'
        queue clear orders
        queue clear orders --yes
        queue delete invoices
        queue delete invoices --yes
        queue delete invoices --yes
    """,
    "message": """
        message list
        push orders '{"total": 42}' --partition customer-7 --id first --type order --trace-id {TRACE}
        push orders '{"total": 43}' --partition customer-7 --id second
        message list orders
        message list orders --id second
        message show 0-1 first
        message show 0-1 nothing
        message result orders first --partition customer-7
        pop orders
        message result orders first --partition customer-7
        message retry 0-1 first
        message dead-letter 0-1 second --error 'a test'
        message result orders second --partition customer-7
        message delete 0-1 second
        push orders '{"total": 44}' --partition customer-7 --id third
        message cancel orders second --partition customer-7
        message cancel orders third --partition customer-7
        message cancel orders third --partition customer-7
        message result orders third --partition customer-7
        message delete 0-1 second --yes
        message show 0-1 second
    """,
    "group": """
        group list
        push orders 1
        push orders 2
        pop orders --group billing
        pop orders --group stock --batch 2
        group list
        group list orders
        group seek orders billing --to beginning --preview
        group seek orders billing --to beginning
        group seek orders billing --to 1 --partition Default
        group seek orders billing --to yesterday
        group seek orders
        group delete orders billing
        group delete orders billing --yes
    """,
    "finding": """
        finding list
        queue create orders --retry-limit 0 --set on_exhausted=block
        push orders '{"total": 1}' --partition customer-7 --id one
        pop orders --no-ack --json
        | ack --status failed --error 'no such card'
        finding list
        finding snooze lanes_stopped/orders/__QUEUE_MODE__/customer-7 --for 8h
        status
        finding list
        finding unsnooze lanes_stopped/orders/__QUEUE_MODE__/customer-7
        finding unsnooze lanes_stopped/orders/__QUEUE_MODE__/customer-7
        finding snooze lanes_stopped/orders/__QUEUE_MODE__/customer-7
        finding snooze lanes_stopped/orders --for 1h
        finding snooze lanes_stopped/orders --for soon
    """,
    "dlq": """
        dlq errors
        queue create orders --retry-limit 0
        dlq list orders
        push orders '{"total": 1}' --id one
        pop orders --no-ack --json
        | ack --status failed --error 'no such card'
        push orders '{"total": 2, "note": "long enough to be cut: a table is no page to read such texts on"}' --id two
        pop orders --no-ack --json
        | ack --status failed --error 'no such customer'
        dlq list orders
        dlq list orders --error card
        dlq show orders 0-1-1-0
        dlq show orders 0-1-1-0 --trace
        dlq show orders nothing
        dlq errors
        dlq replay orders
        dlq replay orders 0-1-1-9
        dlq replay orders 0-1-1-9 --rate 50/s
        dlq replay orders --all --rate fast
        dlq replay orders 0-1-1-0 --payload '{"total": 3}'
        dlq list orders
        dlq replay orders --all --error 'no such' --rate 6000/m
        dlq purge orders --all
        dlq purge orders --all --yes
    """,
    "tenant": """
        tenant list
        tenant create acme --quota queues=100 --quota requestsPerSecond=50
        tenant create acme
        tenant create other --quota chairs=4
        tenant create other --quota queues
        tenant limit acme --quota depth=1000
        tenant limit nobody
        tenant show acme
        tenant show
        tenant list
        tenant delete acme --yes
        tenant delete acme --yes
        tenant key nobody first
    """,
    "retention": """
        retention run
        retention history
        queue create orders --set retention_enabled=true --set retention_seconds=60
        push orders 1
        wait 3600
        retention run
        retention history orders
    """,
    "spec": """
        spec check shop.fairlane
        spec check wrong.fairlane
        spec check nothing.fairlane
        spec compile shop.fairlane
        spec try shop.fairlane Orders '{"id": "o-1", "total": 42}'
        spec try shop.fairlane Orders '{"id": 7}'
        spec try shop.fairlane Order '{}'
        spec fmt --check wrong.fairlane shop.fairlane
        spec fmt loose.fairlane
        spec versions
        spec plan shop.fairlane
        spec apply shop.fairlane
        spec plan shop.fairlane
        spec plan shop.fairlane --against loose.fairlane
        spec versions Shop
        spec show Shop
        spec show Shop --version 9
        queue set Orders max_size=5
        spec plan shop.fairlane
        spec export Shop
        spec apply loose.fairlane
        spec apply empty.fairlane
        spec apply empty.fairlane
    """,
    "hook": """
        hook list
        spec apply shop.fairlane
        hook list
        hook sign shop.fairlane Paid body.json --delivery-id d-1
        hook sign shop.fairlane Payed body.json
        hook test Paid --delivery-id d-1 --wait 0
        hook test Paid --body nothing.json
        hook test Payed
    """,
    "fan-in": """
        fan-in list
        make a fan-in
        fan-in list
        fan-in show run-1
        fan-in show nothing
        fan-in delete run-1
        fan-in delete run-1 --yes
        fan-in delete run-1 --yes
    """,
    "schedule": """
        schedule list
        schedule set report mails '{"kind": "weekly"}' --cron '0 9 * * MON' --timezone Europe/Rome
        schedule set beat ticks --every 30s --missed skip
        schedule set beat ticks --every soon
        schedule set beat ticks --missed never
        schedule list
        schedule show report
        schedule pause beat
        schedule list
        schedule resume beat
        schedule run beat
        schedule show nothing
        schedule delete beat
        schedule delete beat --yes
        schedule delete beat --yes
    """,
    "worker": """
        worker list
        worker run nowhere:app
        worker jobs
        report a worker
        worker list
    """,
    "source": """
        source list
        commit a page
        source list
        source delete crm
        source delete crm --yes
        source delete crm --yes
    """,
    "trace": """
        trace list
        push orders 1 --id first --trace-id {TRACE}
        push invoices 2 --id second --trace-id {TRACE}
        trace show {TRACE}
        trace show {OTHER}
        note
        trace list
        trace notes checkout
        trace notes nothing
    """,
    "key": """
        key list
        key create
        key create ops --role admin
        queue list
        use the key
        key create billing --scope push:orders --scope pop:orders --expires 90d
        see it used
        key create billing --scope fly
        key list
        key show billing
        key show nothing
        key rotate billing --grace 1h
        key revoke billing
        key revoke billing --yes
        key list
        audit list
        audit list --limit 1
        audit verify
    """,
    "operation": """
        pause show
        pause set everything
        pause set pops
        pause set pushes
        pause show
        operation list
        push orders 1 --id first
        push orders 2 --id second
        operation list
        operation list --status failed
        operation show {1}
        operation show nothing
        operation retry
        operation retry {1}
        operation discard {1}
        operation discard {1} --yes
        pause clear pushes
        pause clear pops
    """,
}
