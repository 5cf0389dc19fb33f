"""The code blocks of the pages run as printed, and the names in the pages exist."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from operator import attrgetter
from pathlib import Path

import pytest

import fairlane
from fairlane.testing import AppTest
from tests.docs.pages import LANGUAGES, PAGES, POSTGRES, ROOT, SECRET, Run, blocks, broker
from tests.postgres import PostgresServer

NOT_RUN_MAX = 12
"""Maximum number of blocks in all pages that nothing runs."""
ELSEWHERE = re.compile(r"tests/\S+\.py")
"""The test that does what a block does, in the mark of a block that is not run."""
MARKS = re.compile(r"file: \S+|until stopped|prints|theirs: \w+|not run: \w.*|")
VERB = re.compile(r"`(?:await )?((?:client|broker)(?:\.(?!py\b)[a-z_]+)+)")
RUN = [page for page in PAGES if page.name != "README.md" and any(block.language for block in blocks(page))]
"""The README has its own tests, which also compare its output."""


@pytest.fixture
def server(request: pytest.FixtureRequest) -> PostgresServer | None:
    """Return a server if the page names a database."""
    named = POSTGRES in request.getfixturevalue("page").read_text(encoding="utf-8")
    return request.getfixturevalue("postgres18") if named else None


@pytest.fixture
async def database(page: Path, server: PostgresServer | None) -> AsyncIterator[PostgresServer | None]:
    """Return a server with the role and database that pages name, unless the page itself creates them."""
    if server is None:
        yield None
        return
    made = any("CREATE DATABASE queues" in block.text for block in blocks(page))
    async with server.connect() as admin:
        if not made:
            await admin.execute("CREATE ROLE fairlane LOGIN")
            await admin.execute("CREATE DATABASE queues OWNER fairlane")
        yield server
        await admin.execute("DROP DATABASE IF EXISTS queues WITH (FORCE)")
        await admin.execute("DROP ROLE IF EXISTS fairlane, looker, shop")


@pytest.mark.parametrize("page", RUN, ids=lambda page: page.name)
def test_every_block_of_a_page_runs(
    page: Path, database: PostgresServer | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for secret in set(re.findall(r"\b(?!FAIRLANE_)[A-Z_]*SECRET\b", page.read_text(encoding="utf-8"))):
        monkeypatch.setenv(secret, SECRET)
    with broker() as url:
        run = Run(tmp_path, url, database)
        try:
            for block in blocks(page):
                try:
                    run.run(block)
                except BaseException as error:
                    error.add_note(f"{page.relative_to(ROOT)}:{block.line}")
                    raise
        finally:
            run.close()


def test_few_blocks_are_not_run_and_each_says_why() -> None:
    marked = {f"{page.name}:{block.line}": block.mark for page in PAGES for block in blocks(page)}
    assert [where for where, mark in marked.items() if not MARKS.fullmatch(mark)] == []
    left_out = {where: ELSEWHERE.findall(mark) for where, mark in marked.items() if mark.startswith("not run")}
    assert [test for tests in left_out.values() for test in tests if not (ROOT / test).exists()] == []
    unproven = [where for where, tests in left_out.items() if not tests]
    assert len(unproven) <= NOT_RUN_MAX, unproven


def test_every_block_has_a_language_and_no_code_hides_in_an_indented_one() -> None:
    for page in PAGES:
        assert {block.language for block in blocks(page) if "theirs" not in block.mark} <= LANGUAGES, page.name
        prose = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
        assert not re.search(r"\n\n {4}\S", prose), f"{page.name}: fence it, with its language"


async def test_every_verb_that_a_page_names_is_there() -> None:
    """Check the verbs of a client or broker, such as `client.queues.all`."""
    named = {(page.name, found) for page in PAGES for found in VERB.findall(page.read_text(encoding="utf-8"))}
    assert named
    async with AppTest(fairlane.App()) as test:
        owners = {"client": test.client, "broker": test.broker}
        for page, name in sorted(named):
            kind, path = name.split(".", 1)
            assert attrgetter(path)(owners[kind]), page


def test_every_page_is_in_the_contents_and_the_readme_leads_to_it() -> None:
    contents = (ROOT / "docs/index.md").read_text(encoding="utf-8")
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    listed = re.findall(
        r"^([\w-]+)$", "".join(re.findall(r"```\{toctree\}(.*?)```", contents, re.DOTALL)), re.MULTILINE
    )
    assert sorted(listed) == sorted(
        page.stem for page in PAGES if page.parent == ROOT / "docs" and page.stem != "index"
    )
    for page in listed:
        assert f"({page}.md)" in contents, f"index.md says nothing of {page}.md"
        assert f"(docs/{page}.md)" in readme, f"the README does not lead to {page}.md"


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 170
