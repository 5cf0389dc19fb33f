"""Outputs of commands, for people and as JSON, are those of `golden/`; `pytest tests/cli --golden-update` writes it.

They run in this process against a broker whose clock stands still; ids, paths and measured times become marks."""

from __future__ import annotations

import asyncio
import re
import shlex
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from fairlane.cli.nouns import NOUNS, VERBS, commands
from fairlane.wire.sources import SourcePage, SourceRecord
from fairlane.wire.traces import TraceAdded, TraceBody
from fairlane.wire.workers import WorkerQueue, WorkerReport
from tests.cli.conftest import in_process
from tests.cli.scenarios import STORIES
from tests.until import until

TRACE = "0198c2d1-7a34-7c11-b1f0-3d2f9c6a5e10"
GOLDEN = Path(__file__).parent / "golden"
UNTOLD = {"serve", "poll", "doctor", "spec schema"}
"""Commands that run on, tell of this machine, or print what is compared elsewhere."""
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


class Told:
    """The outputs of commands, as they are compared."""

    def __init__(self, tmp_path: Path, json: bool) -> None:
        self.text, self._tmp, self._json = "", str(tmp_path), json
        self.ids: list[str] = []
        self._last = self.key = ""

    async def run(self, line: str) -> None:
        piped = line.startswith("|")
        line = line.replace("{TRACE}", TRACE).replace("{OTHER}", TRACE.replace("5e10", "5e11"))
        words = shlex.split(re.sub(r"\{(\d)\}", lambda match: self.ids[int(match[1]) - 1], line.removeprefix("| ")))
        if self._json and "--json" not in words and any("--json" in one.names for one in _command(words).options):
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


def _command(words: list[str]) -> Any:
    found = {one.name: one for one in commands()}
    return found.get(" ".join(words[:2])) or found.get(words[0]) or SimpleNamespace(options=[])


async def _beside(line: str, here: SimpleNamespace) -> bool:
    """Do what no command does; whether the line is such a thing."""
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
            await client._ask(TraceAdded, "POST", "traces", body=body)
        case ["see", "it", "used"]:  # that is stored some time after

            async def used() -> bool:
                return any(key.used_at for key in await here.broker.keys.list())

            await until(used)
        case _:
            return False
    return True


@pytest.mark.parametrize("json", [False, True], ids=["people", "json"])
@pytest.mark.parametrize("noun", STORIES)
async def test_commands_print_what_they_printed(
    noun: str,
    json: bool,
    here: SimpleNamespace,
    tmp_path: Path,
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told = Told(tmp_path, json)
    for line in STORIES[noun].strip().splitlines():
        if line.strip() == "use the key":
            monkeypatch.setenv("FAIRLANE_KEY", told.key)
        elif not await _beside(line.strip(), here):
            await told.run(line.strip())
    compare(f"{noun}{'.json' if json else ''}.txt", told.text, request)


def test_help_is_what_it_was(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    lines = [[], *([name] for name in NOUNS), *(one.name.split() for one in commands() if one.name != "serve")]
    texts = [in_process([*line, "--help"], "") for line in lines]
    assert all(code == 0 and err == "" for code, _, err in texts)
    compare("help.txt", "\n".join(out for _, out, _ in texts), request)


def test_every_verb_is_in_a_story() -> None:
    told = {line.strip().removeprefix("| ") for story in STORIES.values() for line in story.splitlines()}
    missing = {one.name for one in commands() if not any(f"{line} ".startswith(f"{one.name} ") for line in told)}
    assert missing == UNTOLD
    assert {one.name.split()[0] for one in commands()} == {*VERBS, *NOUNS}


def compare(name: str, text: str, request: pytest.FixtureRequest) -> None:
    file = GOLDEN / name
    if request.config.getoption("--golden-update"):
        file.write_text(text, encoding="utf-8")
    assert text == file.read_text(encoding="utf-8"), "as it should be? `pytest tests/cli --golden-update`"
