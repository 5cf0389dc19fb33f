"""The processes of a run."""

from __future__ import annotations

import pytest

from fairlane.verify.processes import own_environment


def test_a_broker_of_a_run_starts_from_compiled_modules_and_without_settings_of_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    monkeypatch.setenv("FAIRLANE_WORKERS", "4")
    environment = own_environment({"FAIRLANE_POLLERS": "false"})
    assert "PYTHONDONTWRITEBYTECODE" not in environment
    assert "FAIRLANE_WORKERS" not in environment
    assert environment["FAIRLANE_POLLERS"] == "false"
