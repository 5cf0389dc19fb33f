"""Brokers of the previous release and of the next one, each from a wheel of its own."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PREVIOUS: str | None = None
"""Tag of the previous release. None before the first: the next release is then this one with one more migration."""
BUILT_FROM = ("src", "pyproject.toml", "README.md", "LICENSE", "CHANGELOG.md")
NEXT_VERSION = "99.0.0"
MIGRATION = """
DO $$
DECLARE t record;
BEGIN
    FOR t IN SELECT relname FROM pg_class WHERE relnamespace = 'fairlane'::regnamespace AND relkind = 'r' LOOP
        EXECUTE format('ALTER TABLE fairlane.%I ADD COLUMN next_release int', t.relname);
    END LOOP;
END $$;
CREATE TABLE fairlane.next_release (id int PRIMARY KEY);
"""
"""A migration that adds what a release may add: a table, and a column to every table."""


def previous_release(folder: Path) -> Path:
    """Return a folder with the packages of the previous release, for PYTHONPATH."""
    source = folder / "source"
    source.mkdir(parents=True)
    if PREVIOUS is None:
        copy_tree(source)
    else:
        archive = subprocess.run(["git", "archive", PREVIOUS, *BUILT_FROM], cwd=ROOT, capture_output=True)
        if archive.returncode:
            pytest.fail(f"this clone lacks {PREVIOUS}: run `git fetch --unshallow --tags`", pytrace=False)
        subprocess.run(["tar", "-x", "-C", source], input=archive.stdout, check=True)
    return installed(source, folder)


def next_release(folder: Path) -> Path:
    """Return a folder with the packages of this tree, or of the release after it if this one is the first."""
    source = folder / "source"
    source.mkdir(parents=True)
    copy_tree(source)
    if PREVIOUS is None:
        project = source / "pyproject.toml"
        project.write_text(re.sub(r'(?m)^version = ".*"', f'version = "{NEXT_VERSION}"', project.read_text(), count=1))
        store = source / "src/fairlane/store/postgres"
        (store / "migrations").mkdir()
        (store / "migrations/0002_next.sql").write_text(MIGRATION)
        with (store / "functions/push.sql").open("a") as file:
            file.write("\n-- The functions of the next release.\n")
    return installed(source, folder)


def copy_tree(source: Path) -> None:
    for name in BUILT_FROM:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(ROOT / name, source)


def installed(source: Path, folder: Path) -> Path:
    """Build the wheel of a source tree and unpack it."""
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    built = subprocess.run(build, cwd=source, capture_output=True, text=True)
    assert built.returncode == 0, built.stderr
    [wheel] = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder / "packages")
    return folder / "packages"


def version_of(packages: Path) -> str:
    [metadata] = packages.glob("fairlane-*.dist-info")
    return metadata.name.removeprefix("fairlane-").removesuffix(".dist-info")
