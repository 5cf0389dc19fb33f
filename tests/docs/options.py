"""The table of queue options in docs/queues.md. `python -m tests.docs` rewrites it."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

from fairlane.model.queue import QueueOptions
from fairlane.wire.queues import options_out

PAGE = Path(__file__).parents[2] / "docs/queues.md"
BEGIN, END = "<!-- options: begin -->\n", "<!-- options: end -->\n"

# The meaning of each option, and the tests that fail without it, which run on every store.
OPTIONS: dict[str, tuple[str, tuple[str, ...]]] = {
    "ordering": (
        "`per_key`: each partition is ordered; `fifo`: one partition, `Default`; `unordered`: many consumers share a"
        " partition, see below",
        (
            "test_a_caller_with_a_bad_partition_fails_alone",
            "test_consumers_share_a_partition_and_no_message_is_in_two_hands",
        ),
    ),
    "lease_seconds": (
        "length of a lease; a pop can set its own",
        ("test_a_lease_ends_at_its_end_and_not_before",),
    ),
    "retry_limit": (
        "retries after failed attempts; the number of deliveries is one more",
        ("test_a_failing_message_is_dead_after_its_last_attempt_and_the_lane_goes_on",),
    ),
    "retry_delay_ms": (
        "backoff of the lane after the first failed attempt, in milliseconds; doubles with each further one",
        ("test_backoff_doubles_up_to_its_cap_and_begins_anew_with_the_next_message",),
    ),
    "retry_delay_max_ms": (
        "the longest backoff, in milliseconds",
        ("test_backoff_doubles_up_to_its_cap_and_begins_anew_with_the_next_message",),
    ),
    "retry_jitter": (
        "randomise each backoff between half and all of its length",
        ("test_jitter_spreads_a_sleep_over_half_to_all_of_its_length",),
    ),
    "on_exhausted": (
        "after the last attempt: `dead_letter`: the lane continues; `block`: the lane waits until the message is "
        "removed or retried; `park`: the lane stops until it is resumed",
        ("test_poison_stops_its_lane_and_no_other",),
    ),
    "max_size": (
        "limit of messages that some consumer group has not finished, see Depth; a push above it is refused completely",
        ("test_capacity_is_exact_under_32_pushers",),
    ),
    "max_running": (
        "limit of messages that the consumers of a group hold at the same time, see Limits; 0 for none",
        (
            "test_no_more_messages_are_held_than_may_run",
            "test_sixteen_consumers_of_two_brokers_never_exceed_a_limit",
        ),
    ),
    "rate": (
        "limit of messages that are delivered to a group in a time, such as `10/1m`, see Limits; empty for none",
        ("test_no_more_messages_are_delivered_in_any_period_than_the_rate",),
    ),
    "max_running_per_key": (
        "`max_running` for the messages of each key of an unordered queue, see Limits; 0 for none",
        (
            "test_no_more_messages_of_a_key_are_held_than_may_run",
            "test_sixteen_consumers_of_two_brokers_never_exceed_a_limit_of_a_key",
        ),
    ),
    "rate_per_key": (
        "`rate` for the messages of each key, see Limits; empty for none",
        ("test_no_more_messages_of_a_key_are_delivered_in_any_period_than_the_rate",),
    ),
    "dedup_seconds": (
        "how long a transactionId is remembered, even if its message is deleted; 0 accepts every repeat",
        (
            "test_an_id_is_forgotten_after_the_window_and_not_before",
            "test_an_id_is_known_for_its_window_whatever_retention_deleted",
        ),
    ),
    "delay_seconds": (
        "the age at which a message can be delivered; order is kept",
        ("test_a_delayed_message_is_invisible_until_its_delay_has_passed_and_not_longer",),
    ),
    "window_seconds": (
        "a partition is not read while its newest message is younger than this; then all its messages are delivered",
        ("test_a_window_gives_a_lane_when_its_newest_message_is_old_enough_and_then_all_of_it",),
    ),
    "ttl_seconds": (
        "a message older than this expires, unless a lease holds it",
        ("test_a_message_expires_at_its_age_and_not_before",),
    ),
    "max_wait_seconds": (
        "like `ttl_seconds`, but only for messages without a failed attempt",
        (
            "test_a_message_expires_at_its_age_and_not_before",
            "test_a_message_that_failed_outlives_its_wait_but_not_its_ttl",
        ),
    ),
    "on_expiry": (
        "`dead_letter`: an expired message becomes a dead letter with the error `expired`; `drop`: it is only counted",
        ("test_an_expired_message_is_dropped_and_counted_where_the_queue_says_so",),
    ),
    "priority": (
        "pops by namespace or task try queues of higher priority first; for messages see below",
        ("test_a_pop_over_queues_begins_with_the_one_of_highest_priority_and_starves_none",),
    ),
    "retention_enabled": (
        "enables the next two options",
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
        "the name of a queue that also gets each dead letter as a message; true or false, which some clients send, name"
        " none",
        ("test_a_dead_letter_goes_to_the_queue_named_for_it_whole_and_once",),
    ),
    "dlq_after_max_retries": (
        "accepted for compatibility; dead letters are always kept",
        ("test_dead_letters_are_kept_whatever_a_client_says_of_it",),
    ),
    "cell": (
        "the cell for a new queue: a number, or `same-as` and a queue; empty for the cell with the fewest bytes",
        ("test_a_queue_is_created_in_the_cell_that_its_options_name",),
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
    """Return the wire name of an option: the one whose value changes with it."""
    default, changed = (
        options_out(QueueOptions()),
        options_out(QueueOptions(**cast("dict[str, Any]", {name: object()}))),
    )
    [found] = [wire for wire in default if default[wire] is not changed[wire] and default[wire] != changed[wire]]
    return found


def written() -> str:
    """Return the page with the current table."""
    before, rest = PAGE.read_text(encoding="utf-8").split(BEGIN)
    _, after = rest.split(END)
    return f"{before}{BEGIN}{table()}{END}{after}"
