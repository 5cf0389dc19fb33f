"""The table of queue options in docs/queues.md. `python -m tests.docs` writes it anew."""

from __future__ import annotations

from pathlib import Path

from fairlane.model.queue import QueueOptions
from fairlane.wire.queues import options_out

PAGE = Path(__file__).parents[2] / "docs/queues.md"
BEGIN, END = "<!-- options: begin -->\n", "<!-- options: end -->\n"

# What each option means, and the tests that fail without it, which run on every store.
OPTIONS: dict[str, tuple[str, tuple[str, ...]]] = {
    "ordering": (
        "`per_key`: order inside each partition; `fifo`: one partition, `Default`; `unordered`: many consumers share a"
        " partition, see below",
        (
            "test_a_caller_with_a_bad_partition_fails_alone",
            "test_consumers_share_a_partition_and_no_message_is_in_two_hands",
        ),
    ),
    "lease_seconds": (
        "how long a consumer may keep what it popped; each pop may name its own",
        ("test_a_lease_ends_at_its_end_and_not_before",),
    ),
    "retry_limit": (
        "failed attempts that are followed by another; deliveries in all are one more",
        ("test_a_failing_message_is_dead_after_its_last_attempt_and_the_lane_goes_on",),
    ),
    "retry_delay_ms": (
        "sleep of the lane after the first failed attempt, in milliseconds; doubles with each further one",
        ("test_backoff_doubles_up_to_its_cap_and_begins_anew_with_the_next_message",),
    ),
    "retry_delay_max_ms": (
        "the longest such sleep",
        ("test_backoff_doubles_up_to_its_cap_and_begins_anew_with_the_next_message",),
    ),
    "retry_jitter": (
        "spread each sleep over half to all of its length",
        ("test_jitter_spreads_a_sleep_over_half_to_all_of_its_length",),
    ),
    "on_exhausted": (
        "after the last attempt: `dead_letter` and the lane goes on; `block`: the lane waits until the message is "
        "taken away or tried again; `park`: the lane is set aside until it is resumed",
        ("test_poison_stops_its_lane_and_no_other",),
    ),
    "max_size": (
        "messages not yet finished by every group of consumers, see Depth; a push beyond it is refused whole",
        ("test_capacity_is_exact_under_32_pushers",),
    ),
    "dedup_seconds": (
        "how long a transactionId is remembered, whatever becomes of its message; 0 accepts every repeat",
        (
            "test_an_id_is_forgotten_after_the_window_and_not_before",
            "test_an_id_is_known_for_its_window_whatever_retention_deleted",
        ),
    ),
    "delay_seconds": (
        "a message is not delivered before it is this old; order is kept",
        ("test_a_delayed_message_is_invisible_until_its_delay_has_passed_and_not_longer",),
    ),
    "window_seconds": (
        "a partition is not read while its newest message is younger than this; then all of it comes",
        ("test_a_window_gives_a_lane_when_its_newest_message_is_old_enough_and_then_all_of_it",),
    ),
    "ttl_seconds": (
        "a message older than this expires, unless a lease holds it",
        ("test_a_message_expires_at_its_age_and_not_before",),
    ),
    "max_wait_seconds": (
        "the same, but only while no attempt of the message has failed",
        (
            "test_a_message_expires_at_its_age_and_not_before",
            "test_a_message_that_failed_outlives_its_wait_but_not_its_ttl",
        ),
    ),
    "on_expiry": (
        "`dead_letter`: an expired message is a dead letter with the error `expired`; `drop`: it is counted and gone",
        ("test_an_expired_message_is_dropped_and_counted_where_the_queue_says_so",),
    ),
    "priority": (
        "pops by namespace or task ask queues of higher priority first; for messages see below",
        ("test_a_pop_over_queues_begins_with_the_one_of_highest_priority_and_starves_none",),
    ),
    "retention_enabled": (
        "turns the next two on",
        ("test_messages_older_than_the_rule_go_read_or_not", "test_without_a_rule_nothing_ever_goes"),
    ),
    "retention_seconds": (
        "messages of this age are deleted, finished or not, unless a lease holds them",
        ("test_messages_older_than_the_rule_go_read_or_not",),
    ),
    "completed_retention_seconds": (
        "messages of this age that every group has finished are deleted",
        ("test_completed_messages_go_and_a_group_that_lags_is_never_robbed",),
    ),
    "dead_letter_retention_seconds": (
        "dead letters are deleted this long after their last failure",
        ("test_dead_letters_go_by_a_rule_of_their_own_and_outlive_the_log_without_one",),
    ),
    "encryption_enabled": (
        "payloads are encrypted at rest; without a key nothing is stored or delivered",
        (
            "test_what_goes_in_clear_comes_out_clear_and_lies_there_sealed",
            "test_without_a_key_nothing_is_stored_and_nothing_is_delivered",
        ),
    ),
    "dead_letter_queue": (
        "the name of a queue that gets each dead letter as a message too; true or false, as some clients send it, name"
        " none",
        ("test_a_dead_letter_goes_to_the_queue_named_for_it_whole_and_once",),
    ),
    "dlq_after_max_retries": (
        "accepted as clients send it; dead letters are always kept",
        ("test_dead_letters_are_kept_whatever_a_client_says_of_it",),
    ),
}


def table() -> str:
    lines = ["| option | on the wire | default | meaning | enforced by |\n", "|---|---|---|---|---|\n"]
    for name, (meaning, tests) in OPTIONS.items():
        default = getattr(QueueOptions(), name)
        shown = str(default).lower() if isinstance(default, bool) else default
        enforced = ", ".join(f"`{test}`" for test in tests)
        lines.append(f"| `{name}` | `{_wire(name)}` | {shown} | {meaning} | {enforced} |\n")
    return "".join(lines)


def _wire(name: str) -> str:
    """The option's name on the wire: the one that changes with it."""
    default, changed = options_out(QueueOptions()), options_out(QueueOptions(**{name: object()}))
    [found] = [wire for wire in default if default[wire] is not changed[wire] and default[wire] != changed[wire]]
    return found


def written() -> str:
    """The page with the table as it should be."""
    before, rest = PAGE.read_text(encoding="utf-8").split(BEGIN)
    _, after = rest.split(END)
    return f"{before}{BEGIN}{table()}{END}{after}"
