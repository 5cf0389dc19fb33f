"""`fairlane hook test` shows what a broker does with a webhook."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from fairlane.cli.main import main
from tests.broker_process import broker_process

Run = Callable[..., tuple[object, str, str]]
SPEC = """
app Webhooks {
  queue In { map_to: command Move { id: payload.after } }
  queue Out {}
  queue Idle { delivery { max_attempts: 1 }  map_to: command Nobody { x: payload.x } }
  queue Bad { delivery { max_attempts: 1 }  map_to: command Move { id: string(payload.after - 1) } }
  command Move { input { id: string }  run: queue Out }
  webhook Push { queue: In  verify: github { secret_env: "HOOKS_SECRET" } }
  webhook Wait { queue: Idle  verify: stripe { secret_env: "HOOKS_SECRET" }  idempotency: header "X-Id" }
  webhook Fail { queue: Bad  verify: github { secret_env: "HOOKS_SECRET" } }
  webhook Now { command: Move { id: payload.after }  verify: github { secret_env: "HOOKS_SECRET" } }
}
"""


def test_a_sample_is_signed_sent_and_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOOKS_SECRET", "s" * 32)
    (tmp_path / "hooks.fairlane").write_text(SPEC)
    (tmp_path / "body.json").write_text("[1")

    def run(*arguments: str) -> tuple[object, str, str]:
        monkeypatch.setattr("sys.argv", ["fairlane", *arguments, "--server", broker.url])
        with pytest.raises(SystemExit) as exited:
            main()
        return exited.value.code, *capsys.readouterr()

    with broker_process(f"sqlite:///{tmp_path}/queue.db") as broker:
        code, _, err = run("hook", "test", "Push")
        assert (code, "`fairlane spec apply FILE`" in err) == (2, True)
        assert run("spec", "apply", "hooks.fairlane")[0] == 0
        code, out, _ = run("hook", "test", "Push", "--delivery-id", "d-1")
        assert (code, 'answer   202 {"queued":true,"idempotency_key":' in out) == (0, True)
        assert 'command  Move {"id":"6113728f27ae82c7b1a177c8d03f9e96e0adf246"}' in out
        assert 'result   {"queue":"Out","partition":"Default"}' in out
        code, out, _ = run("hook", "test", "Push", "--delivery-id", "d-1", "--json")
        assert code == 0
        again = json.loads(out)
        assert (again["status"], again["answer"]["processed"]) == (200, True)
        code, out, _ = run("hook", "test", "Wait", "--preset", "github", "--wait", "0.1")
        assert (code, '"x":"sample x"' in out, "waits    for a worker that runs" in out) == (0, True, True)
        assert "added    payload.x: the spec reads this, but the sender's sample does not have it" in out
        code, out, _ = run("hook", "test", "Fail")
        assert (code, "error    " in out, "result   " in out) == (0, True, False), out
        assert [one["replayedAt"] for one in json.loads(run("dlq", "list", "Bad", "--json")[1])] == [None]
        code, out, _ = run("hook", "test", "Now")
        assert (code, "answer   200 " in out, '"processed":true' in out) == (0, True, True)
        code, out, _ = run("hook", "test", "Push", "--body", "body.json")
        assert (code, "answer   400 " in out) == (2, True)
        monkeypatch.setenv("HOOKS_SECRET", "t" * 32)
        code, out, _ = run("hook", "test", "Push")
        assert (code, "answer   401 " in out) == (2, True)
        code, _, err = run("hook", "test", "Pusch")
        assert (code, "did you mean `Push`?" in err) == (2, True)
        code, _, err = run("hook", "test", "Push", "--preset", "gitbub")
        assert (code, "did you mean `github`?" in err) == (2, True)
