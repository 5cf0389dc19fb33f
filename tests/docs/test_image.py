"""The Dockerfile: its steps as a script in a clean directory, and the broker as its image starts it."""

from __future__ import annotations

import http.client
import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from importlib.metadata import requires
from pathlib import Path

import msgspec
import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.broker_process import _ADDRESS
from tests.docs.test_deploy import DEPLOY, ROOT, needs, ran

LINES = (DEPLOY / "Dockerfile").read_text().replace("\\\n", " ").splitlines()
STEPS = [line.split(" ", 1) for line in LINES if line and not line.startswith("#")]
USER = "65532"


def said(what: str) -> list[str]:
    return [rest for step, rest in STEPS if step == what]


def test_the_image_has_the_python_that_the_lock_is_made_for() -> None:
    [version] = [rest.removeprefix("PYTHON=") for rest in said("ARG")]
    assert said("FROM") == ["python:${PYTHON}-slim AS build", "python:${PYTHON}-slim"]
    assert f"--python-version {version} " in (ROOT / "Makefile").read_text()
    assert tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["requires-python"] == f">={version}"


class Image:
    """The files that the steps create, in a directory in place of /. The build context is this tree."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._build = root / "src"
        self._build.mkdir()
        for what, rest in STEPS:
            if what == "COPY" and not rest.startswith("--from"):
                self._copy(*rest.split())
            elif what == "RUN":
                self._run(rest)
        self.data = root / "data"
        self.environment = dict(word.split("=", 1) for rest in said("ENV") for word in shlex.split(self._here(rest)))
        [entry], [command] = said("ENTRYPOINT"), said("CMD")
        self.entry = [self._here(word) for word in msgspec.json.decode(entry)]
        self.command = msgspec.json.decode(command)

    def _here(self, text: str) -> str:
        return re.sub(r"(?<![\w.])/(?=opt/fairlane|data)", f"{self._root}/", text)

    def _copy(self, *words: str) -> None:
        *names, target = words
        for name in names:
            copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
            copy(ROOT / name, self._build / (Path(name).name if target == "./" else target))

    def _run(self, line: str) -> None:
        """Run a step in a shell, as a build does. Its `python` is the one that runs the tests."""
        line = re.sub(r"^python ", f"{sys.executable} ", self._here(line))
        line = line.replace(f"--owner {USER} --group {USER}", f"--owner {os.getuid()} --group {os.getgid()}")
        ran("sh", "-euc", line, cwd=self._build)

    def close(self) -> None:
        """Make everything but the data read-only, even for root, who would otherwise have all rights."""
        for path in [self._root, *self._root.rglob("*")]:
            if path != self.data and not path.is_symlink():
                path.chmod(path.stat().st_mode & ~0o222)

    def reopen(self) -> None:
        """Make the files writable again, so that they can be deleted."""
        for path in [self._root, *self._root.rglob("*")]:
            if path.is_dir() and not path.is_symlink():
                path.chmod(0o700)

    def run(self, *arguments: str) -> list[str]:
        unprivileged = [needs("setpriv"), "--bounding-set=-all", "--inh-caps=-all", "--no-new-privs"]
        return [*(unprivileged if os.getuid() == 0 else []), *self.entry, *arguments]

    def check(self, port: int) -> list[str]:
        """Return the command of the health check, for a broker on another port."""
        [line] = said("HEALTHCHECK")
        words = msgspec.json.decode(line.partition(" CMD ")[2])
        return [self._here(word).replace("127.0.0.1:6632/", f"127.0.0.1:{port}/") for word in words]

    def packages(self) -> set[str]:
        """Return the names of the installed packages."""
        return {path.name.partition("-")[0].lower().replace("_", "-") for path in self._root.rglob("*.dist-info")}

    def files(self) -> list[str]:
        return sorted(str(path) for path in self._root.rglob("*") if self.data not in path.parents)


def at_run_time(name: str, extras: set[str]) -> set[str]:
    """Return a package and its dependencies at run time."""
    found, waiting = set(), [(name, extras)]
    while waiting:
        name, extras = waiting.pop()
        found.add(name)
        for text in requires(name) or []:
            needed = Requirement(text)
            marked = [needed.marker.evaluate({"extra": extra}) for extra in ("", *extras)] if needed.marker else [True]
            if any(marked) and canonicalize_name(needed.name) not in found:
                waiting.append((canonicalize_name(needed.name), set(needed.extras)))
    return found


@pytest.fixture
def image(tmp_path: Path) -> Iterator[Image]:
    made = Image(tmp_path)
    made.close()
    yield made
    made.reopen()


@pytest.mark.timeout(900)  # some twenty seconds on an idle machine, most of them for the locked packages
def test_the_steps_of_the_dockerfile_make_a_broker_that_writes_its_data_and_nothing_else(image: Image) -> None:
    assert USER in said("USER")[0]
    assert said("VOLUME") == ["/data"]
    assert (image.data.stat().st_mode & 0o777, list(image.data.iterdir())) == (0o700, [])
    before = image.files()
    assert image.packages() == at_run_time("fairlane", {"server"}), "nothing that only builds or installs is left"
    environment = image.environment | {"PATH": os.environ["PATH"]}
    version = ran(*image.run("--version"), env=environment, cwd="/")
    assert version.startswith("fairlane ")
    command = image.run(*image.command, "--port", "0")
    refused = subprocess.run(command, capture_output=True, text=True, timeout=100, env=environment, cwd="/")
    assert refused.returncode == 2, "without a key it is for nobody outside"
    assert "fairlane key create" in refused.stderr
    store = environment["FAIRLANE_STORE"]
    key = ran(*image.run("key", "create", "--role", "admin", "--store", store), env=environment, cwd="/")
    assert "fl_" in key
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment, cwd="/") as broker:
        try:
            port = check_alive(broker)
            healthy = subprocess.run(image.check(port), env=environment, cwd="/", timeout=100)
            assert healthy.returncode == 0
        finally:
            broker.terminate()
            broker.communicate(timeout=100)
    assert broker.returncode == 0
    ended = subprocess.run(image.check(port), env=environment, cwd="/", timeout=100, stderr=subprocess.DEVNULL)
    assert ended.returncode == 1, "nobody answers the health check"
    assert image.files() == before
    assert (image.data / "fairlane.db").exists()


def check_alive(broker: subprocess.Popen[str]) -> int:
    """Check that the broker is alive at the address that it logs. Returns its port."""
    assert broker.stderr is not None
    address = next((found for line in broker.stderr if (found := _ADDRESS.search(line))), None)
    assert address is not None, "it ended"
    connection = http.client.HTTPConnection("127.0.0.1", int(address[1].rpartition(":")[2]), timeout=60)
    for path, status in (("/livez", 200), ("/api/v1/whoami", 401)):
        connection.request("GET", path)
        answer = connection.getresponse()
        answer.read()
        assert answer.status == status
    connection.close()
    return connection.port


def test_a_file_system_that_the_image_closed_takes_no_writes(tmp_path: Path) -> None:
    """Verify the assumption of the test above."""
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o500)
    touch = ["touch", str(closed / "file")]
    if os.getuid() == 0:
        touch = [needs("setpriv"), "--bounding-set=-all", "--inh-caps=-all", "--no-new-privs", *touch]
    assert subprocess.run(touch, stderr=subprocess.DEVNULL).returncode == 1
