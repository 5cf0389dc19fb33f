"""Environment variables that a spec may name: never one that is not meant for specs."""

from __future__ import annotations

import pytest

from fairlane.config import named_variables, own_variables
from fairlane.errors import InvalidRequest


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (
        "GITHUB_WEBHOOK_SECRET",
        "FAIRLANE_SECRET_SHOP",
        "FAIRLANE_ENCRYPTION_KEY",
        "DATABASE_URL",
        "SHOP_TOKEN",
    ):
        monkeypatch.setenv(name, f"value of {name}")


def test_a_spec_may_name_secrets_and_what_is_allowed_and_no_setting_of_the_broker() -> None:
    assert named_variables(["GITHUB_WEBHOOK_SECRET"]) == ["value of GITHUB_WEBHOOK_SECRET"]
    assert named_variables(["FAIRLANE_SECRET_SHOP"], allowed="") == ["value of FAIRLANE_SECRET_SHOP"]
    assert named_variables(["SHOP_TOKEN"], allowed="DB_*, SHOP_*") == ["value of SHOP_TOKEN"]
    for name in ("FAIRLANE_ENCRYPTION_KEY", "fairlane_encryption_key", "DATABASE_URL", "NOT_THERE", "SHOP_TOKEN"):
        with pytest.raises(InvalidRequest, match="may not read") as refused:
            named_variables([name])
        assert "value of" not in str(refused.value)
    with pytest.raises(InvalidRequest, match="may not read"):
        named_variables(["FAIRLANE_ENCRYPTION_KEY"], allowed="*")
    with pytest.raises(InvalidRequest, match="is not set for the broker"):
        named_variables(["ANOTHER_SECRET"])


def test_a_person_may_name_any_variable_but_a_setting_of_the_broker() -> None:
    assert own_variables(["SHOP_TOKEN"]) == ["value of SHOP_TOKEN"]
    with pytest.raises(InvalidRequest, match="a setting of the broker"):
        own_variables(["FAIRLANE_ENCRYPTION_KEY"])
    with pytest.raises(InvalidRequest, match="is not set"):
        own_variables(["NOT_THERE"])
