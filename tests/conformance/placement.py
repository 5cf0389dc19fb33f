"""The cells in which the tests of a store with several cells create their queues."""

from __future__ import annotations

from collections.abc import Sequence

IN_TURN = (1, 0)

ONE_CELL = {
    "test_fan_ins": "a fan-in and its callback are in one cell",
    "test_a_spec_that_cannot_be_applied_leaves_nothing_behind": "each cell is changed completely or not at all",
    "test_a_transaction_is_invisible_until_all_of_it_is_there": "each cell shows its part by itself",
    "test_the_version_rises_with_every_change_and_names_its_queue": "changes of several cells have no common order",
}
"""Modules and tests whose queues are all in the second cell, with the reason."""

TRANSACTIONS = {
    "test_transactions",
    "test_a_transaction_that_meets_operations_is_refused_for_now",
    "test_a_transaction_finishes_what_it_names_and_is_known_when_it_comes_again",
    "test_a_transaction_with_an_ack_of_what_was_not_handed_out_is_refused",
    "test_verdicts_in_a_transaction_are_applied_together_or_not_at_all",
    "test_a_transaction_that_meets_an_open_operation_applies_nothing",
    "test_a_transaction_commits_acks_and_pushes_together",
    "test_a_transaction_with_a_lost_lease_is_refused",
    "test_a_transaction_that_does_not_fit_is_refused",
    "test_a_known_id_inside_a_transaction_is_an_idempotent_success",
    "test_a_whole_transaction_may_be_repeated",
    "test_a_transaction_that_acks_a_cancelled_message_stores_nothing",
    "test_a_transaction_that_comes_again_without_ids_is_told_that_it_was_applied",
}
"""Modules and tests with transactions over their queues, which separate servers refuse."""

HOME = {
    "test_encryption": "its tests look at the codec and the data keys, which each cell has for itself",
    "test_staged_messages_are_moved_where_other_programs_can_write": "programs complete messages of the home only",
    "test_one_refused_ack_undoes_the_others": "it acks an unknown partition of the home in the same transaction",
    "test_streams": "Queen's streams are for queues of the home",
    "test_traces": "Queen's traces are for queues of the home",
    "test_traces_are_written_and_read_by_their_tenant": "Queen's traces are for queues of the home",
    "test_the_state_of_a_stream_is_that_of_the_tenant": "Queen's streams are for queues of the home",
    "test_notes_and_states_of_streams_are_counted": "Queen's traces are for queues of the home",
    "test_what_is_kept_of_messages_goes_with_them_and_with_no_others": "Queen's traces are for queues of the home",
    "test_a_deleted_queue_leaves_nothing_of_its_messages": "Queen's traces are for queues of the home",
}
"""Modules and tests whose queues are all in the home, with the reason."""


def places(module: str, test: str, *, citus: bool) -> Sequence[int]:
    """Return the cells of a test's queues, in turn. On Citus only transactions need queues of several cells."""
    names = {module, test}
    if names & HOME.keys():
        return (0,)
    spans = bool(names & TRANSACTIONS) == citus and not names & ONE_CELL.keys()
    return IN_TURN if spans else (1,)
