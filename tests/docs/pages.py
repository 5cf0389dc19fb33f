"""The pages as programs: every fenced block of a page is run in its order, in one folder, against one broker.

The language of a block says how it is run. A comment in front of it may add to that:

    <!-- file: shop.py -->     it is a file, which a later block uses
    <!-- until stopped -->     it is a process that runs on while the page does, and ends well when it is stopped
    <!-- prints -->            it is what the block before it printed; `...` stands for any text, and times and UUIDs
                               for others
    <!-- theirs: Celery -->    it is code of another system, to compare with
    <!-- not run: why -->      it cannot be run here
"""

from __future__ import annotations

import ast
import asyncio
import contextlib
import io
import os
import re
import shlex
import signal
import subprocess
import sys
import threading
import tomllib
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple
from unittest.mock import patch

import msgspec

import fairlane
from fairlane.cli import main
from fairlane.config import load_settings
from fairlane.spec.check import problems
from fairlane.spec.compile import compile_spec
from fairlane.spec.text.source import SourceText
from fairlane.testing import AppTest
from tests.postgres import PostgresServer, binaries
from tests.queen import environments

ROOT = Path(__file__).parents[2]
PAGES = [*sorted((ROOT / "docs").glob("*.md")), ROOT / "README.md", ROOT / "CONTRIBUTING.md"]
BROKER, POSTGRES = "http://127.0.0.1:6632", "postgresql://fairlane@db/queues"
SHOP = POSTGRES.replace("fairlane@", "shop@")
"""The same database for the role of an application."""
SECONDS_MAX = 60.0
"""Timeout in seconds of one block."""
SECRET = "replace-by-that-of-the-sender"
"""Secrets of webhooks and calls, as pages set them."""
LANGUAGES = {"bash", "fairlane", "json", "python", "sh", "sql", "text", "toml"}
COMMANDS = re.compile(r"^(\$ |fairlane |curl |pip |make |await |import |from \w+ import)", re.MULTILINE)
"""Beginnings of lines that are commands or code. A block of plain text must not have any."""
_BLOCK = re.compile(r"(?:^<!-- ([^\n]*) -->\n)?^```([^\n]*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_ADDRESS = re.compile(r" on (http://\S+:\d+), store ")
_VARIES = re.compile(
    r"\.\.\."
    r"|\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(?:\.\d+)?Z"
    r"|[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
)
_numbers = count(1)


class Block(NamedTuple):
    line: int
    mark: str
    language: str
    text: str


def blocks(page: Path) -> list[Block]:
    text = page.read_text(encoding="utf-8")
    found = []
    for one in _BLOCK.finditer(text):
        if not one[2].startswith("{"):  # of the site
            found.append(Block(text.count("\n", 0, one.start(2)) + 1, one[1] or "", one[2], one[3]))
    return found


@contextlib.contextmanager
def broker() -> Iterator[str]:
    """The URL of a broker in this process, in memory."""
    ready, stopped, found = threading.Event(), threading.Event(), []

    async def serve() -> None:
        async with AppTest(fairlane.App()) as test:
            found.append(test.url)
            ready.set()
            await asyncio.to_thread(stopped.wait)

    thread = threading.Thread(target=lambda: asyncio.run(serve()), name="page-broker")
    thread.start()
    try:
        assert ready.wait(SECONDS_MAX)
        yield found[0]
    finally:
        stopped.set()
        thread.join()


def psql(server: PostgresServer, text: str) -> str:
    """Return the command with which an administrator runs SQL in the database that its first line names."""
    url = server.url("queues" if text.startswith("-- in the database queues") else "postgres")
    return f"psql --no-psqlrc --quiet --set ON_ERROR_STOP=1 '{url}' <<'END'\n{text}\nEND"


def database(server: PostgresServer) -> str:
    """The database that the pages name."""
    return f"postgresql://fairlane@/queues?host={server.directory}"


class Process:
    """A process of a page that runs until it is stopped. `said` is its output on stderr."""

    def __init__(self, text: str, folder: Path, environment: dict[str, str]) -> None:
        self.said: list[str] = []
        self._spoke = threading.Condition()
        self._process = subprocess.Popen(
            ["sh", "-c", f"exec env {text}"], cwd=folder, env=environment, stderr=subprocess.PIPE, text=True
        )
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stderr is not None
        for line in self._process.stderr:
            with self._spoke:
                self.said.append(line)
                self._spoke.notify_all()
        with self._spoke:
            self.said.append("")
            self._spoke.notify_all()

    def wait_for(self, pattern: re.Pattern[str]) -> re.Match[str]:
        with self._spoke:
            assert self._spoke.wait_for(lambda: pattern.search("".join(self.said)) or "" in self.said, SECONDS_MAX)
        found = pattern.search("".join(self.said))
        assert found, "".join(self.said)
        return found

    def stop(self) -> None:
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
        code = self._process.wait(SECONDS_MAX)
        self._reader.join()
        assert self._process.stderr is not None
        self._process.stderr.close()
        assert code == 0, "".join(self.said)


class Run:
    """A run of one page in `folder`. `server` is given for a page that names a database."""

    def __init__(self, folder: Path, url: str, server: PostgresServer | None) -> None:
        self.folder, self.url, self.server = folder, url, server
        self.printed = ""
        self._processes: list[Process] = []
        self._names: dict[str, Any] = {name: getattr(fairlane, name) for name in fairlane.__all__}
        for name in (".zfunc", ".config/fish/completions"):
            (folder / name).mkdir(parents=True)

    def run(self, block: Block) -> None:
        kind, _, rest = block.mark.partition(": ")
        if kind == "file":
            (self.folder / rest).write_text(self._here(block.text), encoding="utf-8")
        if kind == "prints":
            assert printed_as(block.text, self.printed), f"printed:\n{self.printed}\nand not:\n{block.text}"
        elif kind == "until stopped":
            self._start(block.text)
        elif kind not in ("not run", "theirs"):
            self.printed = getattr(self, f"_{block.language}")(self._here(block.text)) or ""

    def close(self) -> None:
        while self._processes:
            self._processes.pop().stop()

    def _here(self, text: str) -> str:
        """Replace what differs on each machine: the addresses of broker and database."""
        if self.server is not None:
            url = database(self.server)
            text = text.replace(f'"{POSTGRES}"', f'"{url}"').replace(POSTGRES, shlex.quote(url))
            text = text.replace(SHOP, url.replace("fairlane@", "shop@"))
        return text.replace(BROKER, self.url)

    @property
    def _environment(self) -> dict[str, str]:
        return os.environ | {
            "FAIRLANE_SERVER": self.url,
            "FAIRLANE_PORT": "0",
            "FAIRLANE_HOST": "127.0.0.1",
            "HOME": str(self.folder),
            "NO_COLOR": "1",
            "PATH": f"{Path(sys.executable).parent}:{binaries(18)}:{os.environ['PATH']}",
        }

    def _start(self, text: str) -> None:
        if serves := "fairlane serve" in text:
            self.close()
        process = Process(self._here(text), self.folder, self._environment)
        self._processes.append(process)
        found = process.wait_for(_ADDRESS if serves else re.compile(r"()\n"))
        self.url = found[1] or self.url

    def _sh(self, text: str, shell: str = "sh") -> str:
        """Run a block in a shell. Plain commands run in this process, because starting one for each takes a minute."""
        if commands := plain_commands(text):
            return "".join(map(self._command, commands))
        done = subprocess.run(
            [shell, "-e", "-c", text],
            cwd=self.folder,
            env=self._environment,
            capture_output=True,
            text=True,
            timeout=SECONDS_MAX,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def _command(self, words: list[str]) -> str:
        printed, said = io.StringIO(), io.StringIO()
        with (
            contextlib.chdir(self.folder),
            patch.dict(os.environ, self._environment),
            contextlib.redirect_stdout(printed),
            contextlib.redirect_stderr(said),
        ):
            code = main.run(words)
        assert code == 0, f"{words}: {code}\n{printed.getvalue()}{said.getvalue()}"
        return printed.getvalue()

    def _bash(self, text: str) -> str:
        return self._sh(text, "bash")

    def _python(self, text: str) -> str:
        """Run a program as a module, or a fragment that awaits with `client` and uses names of earlier fragments."""
        printed = io.StringIO()
        code = compile(text, "snippet", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        if "from queen import" in text:
            return self._sh(f"{environments.python(environments.NEWEST)} - <<'END'\n{text}\nEND")
        with contextlib.redirect_stdout(printed), contextlib.chdir(self.folder):
            if code.co_flags & 0x80:  # CO_COROUTINE
                asyncio.run(self._awaited(code))
            else:
                module = ModuleType(f"snippet_{next(_numbers)}")
                sys.modules[module.__name__] = module
                exec(code, module.__dict__)
        return printed.getvalue()

    async def _awaited(self, code: Any) -> None:
        async with fairlane.Client(self.url) as client:
            self._names["client"] = client
            await eval(code, self._names)

    def _fairlane(self, text: str) -> None:
        whole = text if text.startswith("app ") else f"app Page {{ {text} }}"
        for problem in problems(compile_spec(SourceText("page", whole), lambda _: "")):
            raise problem

    def _toml(self, text: str) -> None:
        tomllib.loads(text)
        (self.folder / "fairlane.toml").write_text(text, encoding="utf-8")
        load_settings({}, self.folder / "fairlane.toml")

    def _json(self, text: str) -> None:
        msgspec.json.decode(text)

    def _sql(self, text: str) -> str:
        assert self.server is not None
        return self._sh(psql(self.server, text))

    def _text(self, text: str) -> None:
        assert not COMMANDS.search(text), "what can be run has its language"


def plain_commands(text: str) -> list[list[str]]:
    """Return the words of each command. None unless all are `fairlane` commands without shell syntax."""
    commands, begun = [], ""
    for line in text.splitlines():
        begun += line + "\n"
        try:
            words = shlex.split(begun, comments=True)
        except ValueError:  # a quotation goes on
            continue
        begun = ""
        if words and (words[0] != "fairlane" or set(words) & {"|", ">", "<", "&&", "\\"} or "$" in line):
            return []
        commands += [words[1:]] if words else []
    return commands


def printed_as(expected: str, printed: str) -> bool:
    """Return True if the text was printed, ignoring white space at the ends of lines."""
    pattern = ".*?".join(re.escape(part) for part in _VARIES.split(_trimmed(expected)))
    return re.fullmatch(pattern, _trimmed(printed), re.DOTALL) is not None


def _trimmed(text: str) -> str:
    return "\n".join(line.rstrip() for line in text.strip().splitlines())
