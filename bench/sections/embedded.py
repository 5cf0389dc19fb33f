"""A queue in your own process: `Broker.open` beside tables that programs write themselves, without HTTP."""

from __future__ import annotations

from bench.load import BATCH
from bench.results import Results
from bench.sections.clients import FAIRLANE, Workload, compared
from bench.suite import Section, Suite
from bench.systems import EMBEDDED

SHARE = 0.5
WORKLOADS = (
    Workload("push", 64, "push 1 per call, 64 tasks", share=SHARE),
    Workload("consume_one", 64, "consume and ack 1 per call, 64 tasks", share=SHARE),
    Workload("push_batch", 8, f"push {BATCH} per call, 8 tasks", share=SHARE),
    Workload("consume", 8, f"consume and ack {BATCH} per call, 8 tasks", share=SHARE),
)
SKIP_LOCKED, SQLITE_TABLE = "SKIP LOCKED table", "SQLite table"


async def run(suite: Suite) -> Results:
    results = await compared(suite, "embedded", EMBEDDED, WORKLOADS)
    for workload in WORKLOADS:
        results.compare(workload.label, FAIRLANE, SKIP_LOCKED)
        results.compare(workload.label, FAIRLANE[1:], SQLITE_TABLE)
    return results


EMBEDDED_SECTION = Section(
    "embedded",
    "In your own process",
    "One Python process with uvloop that opens the queue itself: a broker of Fairlane without HTTP, a PostgreSQL table "
    "read with SKIP LOCKED by asyncpg with up to 16 connections, or a SQLite table by apsw. Every call is durable when "
    "it returns. Payloads are 98 bytes. Fairlane uses 200 partitions (64 with one message per push) and keeps order in "
    "each. It acks a batch in the call that pops the next one, and single messages in a call of their own. The tables "
    "delete what they deliver. The client is the whole process.",
    run,
)
