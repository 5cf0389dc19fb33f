"""Compares the output of commands with `golden/`. `pytest tests/cli --golden-update` rewrites it.

Commands run in this process against a broker with a frozen clock. Ids, paths and measured times are replaced."""

from __future__ import annotations

import asyncio
import re
import shlex
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest

from fairlane.cli.main import COMMANDS, GROUPS
from fairlane.wire.sources import SourcePage, SourceRecord
from fairlane.wire.traces import TraceAdded, TraceBody
from fairlane.wire.workers import WorkerQueue, WorkerReport
from tests.cli.commands import commands, spellings
from tests.cli.conftest import in_process
from tests.cli.scenarios import STORIES
from tests.queen_package import INSTALLED
from tests.until import until

TRACE = "0198c2d1-7a34-7c11-b1f0-3d2f9c6a5e10"
GOLDEN = Path(__file__).parent / "golden"
CLUSTER = {
    f"cluster {verb}" for verb in ("add", "status", "move", "rebalance", "move-queue", "close", "reopen", "remove")
}
"""Commands that need two servers; `tests/cells` runs them."""
NOT_COMPARED = {"serve", "poll", "doctor", "spec schema", *CLUSTER}
"""Commands that do not end, depend on the machine, or are compared elsewhere."""
if not INSTALLED:
    del STORIES["trace"]
    NOT_COMPARED |= {"trace list", "trace notes", "trace show"}
_ID = re.compile(r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b")
_KEY = re.compile(r"\bfl_\w+")
_MARKS = [
    (_KEY, "fl_SECRET"),
    (re.compile(r"\b20(2[4-9]|[3-9]\d)-\d\d-\d\d[ T]\d\d:\d\d:\d\d(\.\d+)?Z"), "2024-01-01 00:00:00Z"),
    (re.compile(r"\b1[7-9]\d{14}\b"), "1700000000000000"),
    (re.compile(r"fairlane \d+\.\d+\.\d+\S*, up \d+ \w+"), "fairlane VERSION, up TIME"),
    (re.compile(r"(http://127\.0\.0\.1):\d{4,5}"), r"\1:6632"),
    (re.compile(r'"(version|timestamp)":"[^"]*"'), r'"\1":"MARK"'),
    (re.compile(r'"(worker_id|statsAge)":\d+'), r'"\1":0'),
    (re.compile(r"\b\d+\.\d+\b(?![-.])"), "0.0"),
    (re.compile(r"(?<=sha256=)[0-9a-f]{64}|(?<=[Hh]ash is )[0-9a-f]{64}|(?<=head\":\")[0-9a-f]{64}"), "HASH"),
    (re.compile(r'(?<="source":"127\.0\.0\.0","hash":")[0-9a-f]{64}'), "HASH"),
]


class Transcript:
    """Runs the commands of a story and collects their normalized output."""

    def __init__(self, tmp_path: Path, json: bool) -> None:
        self.text, self._tmp, self._json = "", str(tmp_path), json
        self.ids: list[str] = []
        self._last = self.key = ""

    async def run(self, line: str) -> None:
        piped = line.startswith("|")
        line = line.replace("{TRACE}", TRACE).replace("{OTHER}", TRACE.replace("5e10", "5e11"))
        words = shlex.split(re.sub(r"\{(\d)\}", lambda match: self.ids[int(match[1]) - 1], line.removeprefix("| ")))
        if self._json and "--json" not in words and _has_json(words):
            words.append("--json")
        code, out, err = await asyncio.to_thread(in_process, words, self._last if piped else "")
        self._last = out
        self.key = (_KEY.findall(out) or [self.key])[-1]
        self.text += f"{'|' if piped else '$'} fairlane {shlex.join(map(self._marked, words))}\n"
        self.text += self._marked(out) + "".join(f"! {one}\n" for one in self._marked(err).splitlines())
        self.text += f"exit {code}\n\n" if code else "\n"

    def _marked(self, text: str) -> str:
        for id in _ID.findall(text):
            if id not in self.ids:
                self.ids.append(id)
        text = _ID.sub(lambda match: f"00000000-0000-7000-0000-{self.ids.index(match[0]) + 1:012}", text)
        for found, mark in _MARKS:
            text = found.sub(mark, text)
        return text.replace(self._tmp, "/tmp/here")


def _has_json(words: list[str]) -> bool:
    found = commands()
    command = found.get(" ".join(words[:2])) or found.get(words[0])
    return command is not None and "--json" in spellings(command)


async def _beside(line: str, here: SimpleNamespace) -> bool:
    """Run a step that is not a command. Returns False if the line is a command."""
    client = here.client
    match line.split():
        case ["wait", seconds]:
            here.clock.advance(int(seconds))
        case ["report", *_]:
            queue = WorkerQueue(
                queue="orders", group="stock", concurrency=8, in_hand=2, handled=41, failed=1, mean_ms=3.5
            )
            report = WorkerReport(app="shop.jobs", hostname="box-1", pid=4711, queues=[queue], current=["orders/7"])
            await client.workers.report("w-1", report)
        case ["make", "a", "fan-in"]:
            parts = [("pages", n, {"transaction_id": f"page-{n}"}) for n in range(3)]
            await client.fan_in(parts, ("reports", {"order": 7}), id="run-1")
            await client.ack((await client.pop("pages"))[0], result="first")

            async def noted() -> bool:
                return (await client.fan_ins.get("run-1")).parts[0].ended_at is not None

            await until(noted)
        case ["commit", *_]:
            lease = await client.sources.lease("crm")
            records = [SourceRecord(key="c-1", hash="aa", data=msgspec.Raw(b'{"id":"c-1"}'))]
            page = SourcePage(
                token=lease.token, before="", revision="r-1", queue="customers", cursor="c-1", records=records
            )
            await client.sources.commit("crm", page)
        case ["note", *_]:
            note = msgspec.Raw(b'{"text":"paid"}')
            body = TraceBody(transaction_id="first", partition_id="0-1", data=note, trace_names="checkout")
            await client.traces._call(TraceAdded, "POST", "traces", body=body)
        case ["see", "it", "used"]:  # that is stored some time after

            async def used() -> bool:
                return any(key.used_at for key in await here.broker.keys.all())

            await until(used)
        case _:
            return False
    return True


@pytest.mark.parametrize("json", [False, True], ids=["people", "json"])
@pytest.mark.parametrize("group", STORIES)
async def test_commands_print_what_they_printed(
    group: str,
    json: bool,
    here: SimpleNamespace,
    tmp_path: Path,
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    transcript = Transcript(tmp_path, json)
    for line in STORIES[group].strip().splitlines():
        if line.strip() == "use the key":
            monkeypatch.setenv("FAIRLANE_KEY", transcript.key)
        elif not await _beside(line.strip(), here):
            await transcript.run(line.strip())
    compare(f"{group}{'.json' if json else ''}.txt", transcript.text, request)


def test_help_is_what_it_was(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    lines = [[], *([name] for name in GROUPS), *(name.split() for name in commands() if name != "serve")]
    texts = [in_process([*line, "--help"], "") for line in lines]
    assert all(code == 0 and err == "" for code, _, err in texts)
    compare("help.txt", "\n".join(out for _, out, _ in texts), request)


def test_every_verb_is_in_a_story() -> None:
    lines = {line.strip().removeprefix("| ") for story in STORIES.values() for line in story.splitlines()}
    missing = {name for name in commands() if not any(f"{line} ".startswith(f"{name} ") for line in lines)}
    assert missing == NOT_COMPARED
    assert {name.split()[0] for name in commands()} == {*COMMANDS, *GROUPS}


def compare(name: str, text: str, request: pytest.FixtureRequest) -> None:
    file = GOLDEN / name
    if request.config.getoption("--golden-update"):
        file.write_text(text, encoding="utf-8")
    assert text == file.read_text(encoding="utf-8"), "as it should be? `pytest tests/cli --golden-update`"
