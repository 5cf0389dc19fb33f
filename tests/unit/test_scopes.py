"""Scopes: what they allow, what they cover, and invalid ones."""

from __future__ import annotations

import pytest

from fairlane.errors import Forbidden, InvalidRequest
from fairlane.model.principal import ANYBODY, OF_QUEUES, SCOPES, Grants, Principal


def caller(*scopes: str) -> Principal:
    return Principal(name="key:test", grants=Grants.parse(scopes))


def test_a_scope_is_for_all_queues_for_one_or_for_those_that_begin_alike() -> None:
    narrow = caller("push", "pop:orders", "status:orders.*")
    assert narrow.allows("push", "anything")
    assert narrow.allows("pop", "orders")
    assert not narrow.allows("pop", "orders.eu")
    assert narrow.allows("status", "orders.eu")
    assert not narrow.allows("status", "orders")
    assert not narrow.allows("browse", "orders")
    assert narrow.allows_all("push")
    assert not narrow.allows_all("pop")
    assert narrow.allows_some("browse", "pop")
    assert not narrow.allows_some("browse", "seek")


def test_a_pattern_is_never_an_expression() -> None:
    odd = caller("push:a.c", "pop:[ab]*")
    assert not odd.allows("push", "abc")
    assert odd.allows("pop", "[ab]x")
    assert not odd.allows("pop", "a")


def test_a_role_is_a_bundle_of_scopes_and_may_be_for_some_queues() -> None:
    assert caller("admin").grants.whole == set(SCOPES) == ANYBODY.grants.whole
    assert caller("read-write").grants.whole == set(OF_QUEUES)
    reader = caller("read-only:orders.*")
    assert reader.allows("browse", "orders.eu")
    assert not reader.allows("browse", "bills")
    assert not reader.allows("push", "orders.eu")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("pus", "is not a scope"),
        ("", "is not a scope"),
        ("Admin", "is not a scope"),
        ("push:", "must not be empty"),
        ("push:a*b", "its beginning with a"),
        ("push:a**", "its beginning with a"),
        ("system:orders", "takes no queue"),
        ("admin:orders.*", "takes no queue"),
    ],
)
def test_what_is_no_scope_is_refused(text: str, why: str) -> None:
    with pytest.raises(InvalidRequest, match=why):
        Grants.parse([text])


@pytest.mark.parametrize(
    ("wide", "narrow", "covered"),
    [
        ("admin", "keys", True),
        ("read-write", "system", False),
        ("push", "push:orders", True),
        ("push:orders", "push", False),
        ("push:orders*", "push:orders.*", True),
        ("push:orders.*", "push:orders*", False),
        ("push:orders.*", "push:orders.eu", True),
        ("push:orders", "push:orders*", False),
        ("push:*", "push", True),
        ("pop:orders", "push:orders", False),
    ],
)
def test_grants_cover_what_allows_nothing_more(wide: str, narrow: str, covered: bool) -> None:
    assert Grants.parse([wide]).covers(Grants.parse([narrow])) is covered


def test_a_refusal_names_the_scope_and_the_queue() -> None:
    narrow = caller("push:orders")
    narrow.check("push", "orders")
    with pytest.raises(Forbidden, match=r"key:test .* push:bills"):
        narrow.check("push", "orders", "bills")
    with pytest.raises(Forbidden, match="push, for all queues"):
        narrow.check("push")
