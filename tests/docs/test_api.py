"""Every route, error code and setting is on its page, as defined in the code."""

from __future__ import annotations

from fairlane.client.options import ClientOptions
from fairlane.config import Settings
from fairlane.errors import FairlaneError
from tests.docs import api, errors, settings
from tests.unit.test_tidy import OF_HTTP


def test_every_code_is_explained() -> None:
    assert {kind.code for kind in errors.tree()} == set(errors.CODES), "explain it in tests/docs/errors.py"
    assert set(errors.OF_HTTP) == OF_HTTP, "explain it in tests/docs/errors.py"
    assert FairlaneError.code not in errors.CODES


def test_the_page_of_errors_has_the_tables_that_the_tree_gives() -> None:
    assert errors.PAGE.read_text(encoding="utf-8") == errors.written(), "run `python -m tests.docs`"


def test_the_page_of_the_api_has_the_tables_that_the_routes_give() -> None:
    assert set(api.families()) <= set(api.FAMILIES), "say what the family is about in tests/docs/api.py"
    assert api.PAGE.read_text(encoding="utf-8") == api.written(), "run `python -m tests.docs`"


def test_the_page_of_the_broker_has_the_table_that_its_settings_give() -> None:
    assert set(settings.MORE) <= set(Settings.__struct_fields__)
    assert settings.PAGE.read_text(encoding="utf-8") == settings.written(), "run `python -m tests.docs`"


def test_every_option_of_a_client_is_described() -> None:
    page = (settings.PAGE.parent / "client.md").read_text(encoding="utf-8")
    assert [one for one in sorted(ClientOptions.__optional_keys__) if f"`{one}`" not in page] == []
