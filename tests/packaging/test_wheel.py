"""The built wheel in an empty environment: the quickstart runs, and the base install stays light."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from tests.docs.pages import ROOT, Run, blocks

pytestmark = pytest.mark.timeout(600)
BASE = ("click", "msgspec")
"""All packages that the base install needs."""


def run(*words: str | Path, check: bool = True) -> subprocess.CompletedProcess[str]:
    done = subprocess.run([*words], cwd=ROOT, capture_output=True, text=True, check=False)
    assert not check or done.returncode == 0, f"{words}:\n{done.stdout}{done.stderr}"
    return done


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the wheel and the source package."""
    folder = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "hatchling", "build", "--directory", folder)
    return folder


def environment(folder: Path, packages: Path, requirements: Path) -> Path:
    """The bin directory of a new environment with only the wheel and the locked requirements."""
    run(sys.executable, "-m", "venv", folder)
    install = (folder / "bin/python", "-m", "pip", "--disable-pip-version-check", "--quiet", "install")
    run(*install, "--no-deps", "--require-hashes", "--requirement", requirements)
    run(*install, "--no-deps", *packages.glob("*.whl"))
    return folder / "bin"


class InstalledRun(Run):
    """A run of a page with the programs of another environment, each as a separate process."""

    def __init__(self, folder: Path, programs: Path) -> None:
        self._programs = programs
        super().__init__(folder, "", None)

    @property
    def _environment(self) -> dict[str, str]:
        inherited = {name: value for name, value in super()._environment.items() if not name.startswith("PYTHON")}
        return inherited | {"PATH": f"{self._programs}:{inherited['PATH']}"}

    def _sh(self, text: str, shell: str = "sh") -> str:
        done = subprocess.run(
            [shell, "-e", "-c", text],
            cwd=self.folder,
            env=self._environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def _python(self, text: str) -> str:
        return self._sh(f"python -c {shlex.quote(text)}")


def test_the_wheel_runs_the_quickstart_in_an_empty_environment(packages: Path, tmp_path: Path) -> None:
    programs = environment(tmp_path / "environment", packages, ROOT / "requirements/server.txt")
    page = ROOT / "docs/quickstart.md"
    quickstart = InstalledRun(tmp_path / "folder", programs)
    try:
        for block in blocks(page):
            try:
                quickstart.run(block)
            except BaseException as error:
                error.add_note(f"{page.name}:{block.line}")
                raise
    finally:
        quickstart.close()


def test_the_base_install_is_light_and_names_the_extra_for_the_rest(packages: Path, tmp_path: Path) -> None:
    locked = (ROOT / "requirements/server.txt").read_text()
    requirements = tmp_path / "base.txt"
    requirements.write_text(
        "".join(re.search(rf"^{name}==(.*\\\n)*.*\n", locked, re.MULTILINE)[0] for name in BASE)  # type: ignore[index]
    )
    programs = environment(tmp_path / "environment", packages, requirements)
    run(programs / "python", "-m", "pip", "--disable-pip-version-check", "check")
    run(programs / "python", "-c", "from fairlane import App, Client; from fairlane.blocking import Client")
    assert run(programs / "fairlane", "--version").stdout.startswith("fairlane ")
    opening = ["serve", "doctor", "verify", "export", "import x", "backup x", "restore x", "cluster status"]
    opening += ["migrate --from sqlite:///a --to postgresql://b/c", "key create ops --role admin --store queue.db"]
    for words in opening:
        refused = run(programs / "fairlane", *words.split(), check=False)
        assert (refused.returncode, "pip install 'fairlane[server]'" in refused.stderr) == (2, True), refused.stderr
        assert "Traceback" not in refused.stderr


def test_the_packages_hold_the_source_and_no_tests(packages: Path) -> None:
    source = {str(path.relative_to(ROOT / "src")) for path in (ROOT / "src/fairlane").rglob("*.*") if is_source(path)}
    (wheel,), (sdist,) = packages.glob("*.whl"), packages.glob("*.tar.gz")
    in_wheel = {name for name in zipfile.ZipFile(wheel).namelist() if not name.split("/")[0].endswith(".dist-info")}
    assert in_wheel == source
    with tarfile.open(sdist) as archive:
        in_sdist = {name.partition("/")[2] for name in archive.getnames()}
    assert {f"src/{name}" for name in source} <= in_sdist
    assert {name.split("/")[0] for name in in_sdist} == {
        *("src", "pyproject.toml", "README.md", "LICENSE", "CHANGELOG.md", "PKG-INFO", ".gitignore")
    }


def is_source(path: Path) -> bool:
    return path.is_file() and "__pycache__" not in path.parts
