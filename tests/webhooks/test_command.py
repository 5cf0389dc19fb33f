"""`fairlane hook sign` makes signatures that the verifier accepts."""

from __future__ import annotations

import io
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from fairlane.cli.main import main
from fairlane.webhooks.schemes import PRESETS
from fairlane.webhooks.signatures import verify
from tests.spec.samples import INCIDENTS

Run = Callable[..., tuple[object, str, str]]
SECRET = "s" * 32
BODY = b'{"a": 1}\r\n\xff'


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Run `fairlane hook ...` with the secret in the environment and a body on stdin."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PAGERDUTY_WEBHOOK_SECRET", SECRET)
    (tmp_path / "a.fairlane").write_text(INCIDENTS)

    def run(*arguments: str) -> tuple[object, str, str]:
        monkeypatch.setattr("sys.argv", ["fairlane", "hook", *arguments])
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(BODY)))
        with pytest.raises(SystemExit) as exited:
            main()
        return exited.value.code, *capsys.readouterr()

    return run


def test_the_headers_that_it_prints_are_those_of_a_good_webhook(run: Run, tmp_path: Path) -> None:
    (tmp_path / "body").write_bytes(BODY)
    for arguments in ((), ("body",)):
        code, out, _ = run("sign", "a.fairlane", "PagerDutyAlert", *arguments, "--delivery-id", "d-1")
        assert code == 0
        headers = dict(line.encode().split(b": ", 1) for line in out.splitlines())
        assert headers[b"x-webhook-id"] == b"d-1"
        assert verify(PRESETS["pagerduty"], [SECRET.encode()], headers, BODY, now=time.time()) is None


def test_what_cannot_be_signed_is_explained_without_the_secret(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "open.fairlane").write_text("app A { queue Q {} webhook W { queue: Q } }")
    monkeypatch.setenv("PAGERDUTY_WEBHOOK_SECRET", "tiny one")
    code, out, err = run("sign", "a.fairlane", "PagerDutyAlert")
    assert (code, out, "too short" in err, "tiny one" in err) == (2, "", True, False)
    monkeypatch.delenv("PAGERDUTY_WEBHOOK_SECRET")
    code, _, err = run("sign", "a.fairlane", "PagerDutyAlert")
    assert (code, "PAGERDUTY_WEBHOOK_SECRET is not set" in err) == (2, True)
    code, _, err = run("sign", "a.fairlane", "PagerDutyAlrt")
    assert (code, "did you mean `PagerDutyAlert`?" in err) == (2, True)
    code, _, err = run("sign", "open.fairlane", "W")
    assert (code, "is not signed" in err) == (2, True)
    code, _, err = run("sign", "a.fairlane", "PagerDutyAlert", "missing")
    assert code == 2
