"""`fairlane spec plan`, `apply`, `versions` and `export` against a broker."""

from __future__ import annotations

from pathlib import Path

from tests.cli.conftest import Command


def test_a_spec_is_planned_applied_asked_about_and_exported(fairlane: Command, queue: str, tmp_path: Path) -> None:
    file, app = tmp_path / "app.fairlane", "CommandLine"
    file.write_text(f'app {app} {{ queue "{queue}" {{ retention {{ max_depth: 9 }} }} }}', encoding="utf-8")
    applied = fairlane("spec", "apply", str(file))
    assert applied.code == 0, applied.err
    assert f"+ queue {queue}" in applied.out
    assert f"{app} is applied: version " in applied.err
    assert fairlane("spec", "plan", str(file)).err == "No changes.\n"

    fairlane("queue", "create", queue, "--replace", "--max-size", "5")
    drifted = fairlane("spec", "plan", str(file))
    assert "Changed outside of specs since the last apply:" in drifted.err
    assert "    ~ retention.max_depth: 9 -> 5" in drifted.out
    assert "max_depth: 5" in fairlane("spec", "export", app).out

    file.write_text(f"app {app} {{}}", encoding="utf-8")
    refused = fairlane("spec", "apply", str(file))
    assert refused.code == 2
    assert "Confirm with --yes" in refused.err
    assert fairlane("spec", "apply", str(file), "--yes").code == 0
    assert queue not in fairlane("queue", "list").out
    assert len(fairlane("spec", "versions", app, "--json").json) == 2
