"""The dashboard's files, as the broker serves them."""

from __future__ import annotations

import gzip
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from fairlane.http.routes.dashboard import served
from tests.http.wire import Wire

ROOT = Path(__file__).parents[2]


async def test_the_page_and_its_files_are_served(wire: Wire) -> None:
    page = await wire.get("/")
    assert page.status == 200
    assert page.headers["Content-Type"] == "text/html; charset=utf-8"
    assert page.body.startswith(b"<!doctype html>")
    kinds = {"html": "text/html", "css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}
    for name in served():
        answer = await wire.get(f"/dashboard/{name}")
        assert answer.status == 200
        assert answer.headers["Content-Type"].startswith(kinds[name.rpartition(".")[2]])
        assert answer.body == (ROOT / "src/fairlane/dashboard" / name).read_bytes()


def test_all_of_it_together_weighs_less_than_a_photograph() -> None:
    """Sizes are not compressed: a user who opens every page has loaded this much."""
    assert sum(len(file.plain.body) for file in served().values()) < 300_000


async def test_its_answers_run_no_strangers_script_and_are_framed_by_nobody(wire: Wire) -> None:
    for path in ("/", "/dashboard/index.html"):
        headers = (await wire.get(path)).headers
        policy = headers["Content-Security-Policy"].split("; ")
        assert set(policy) == {
            *(
                "default-src 'none'",
                "script-src 'self'",
                "style-src 'self'",
                "connect-src 'self'",
                "img-src 'self' data:",
            ),
            *("base-uri 'none'", "frame-ancestors 'none'", "form-action 'none'"),
        }
        assert "unsafe" not in headers["Content-Security-Policy"]
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert headers["Referrer-Policy"] == "no-referrer"
        assert headers["Cross-Origin-Opener-Policy"] == "same-origin", "no page that opened it holds on to its window"


async def test_a_browser_that_has_it_is_not_sent_it_again(wire: Wire) -> None:
    first = await wire.get("/", headers={"accept-encoding": "identity"})
    assert first.headers["Cache-Control"] == "no-cache"
    same = await wire.get("/", headers={"if-none-match": first.headers["Etag"]})
    assert (same.status, same.body) == (304, b"")
    assert "Content-Length" not in same.headers
    assert (await wire.get("/", headers={"if-none-match": 'W/"other"'})).status == 200
    packed = served()["index.html"].compressed
    assert gzip.decompress(packed.body) == first.body


async def test_a_head_says_how_long_it_is(wire: Wire) -> None:
    answer = await wire.ask("HEAD", "/", headers={"accept-encoding": "identity"})
    assert (answer.status, answer.body) == (200, b"")
    assert int(answer.headers["Content-Length"]) == len(served()["index.html"].plain.body)


@pytest.mark.parametrize(
    "path",
    [
        "..%2f..%2fpyproject.toml",
        "../http/app.py",
        "js/..%2f..%2ferrors.py",
        "%2e%2e/errors.py",
        "/etc/passwd",
        "index.html/",
        "index.html%00",
        "js",
        "x",
    ],
)
async def test_no_path_leads_out_of_it(wire: Wire, path: str) -> None:
    (await wire.get(f"/dashboard/{path}")).refused(404)


@pytest.mark.may_block_loop
def test_the_wheel_has_it(tmp_path: Path) -> None:
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    done = subprocess.run(build, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    [wheel] = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path / "installed")
    program = (
        "import fairlane.http.routes.dashboard as d; print(d.__file__); print(*sorted(d.served()), sep='\\n', end='')"
    )
    environment = os.environ | {"PYTHONPATH": str(tmp_path / "installed")}
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, env=environment, capture_output=True, text=True
    )
    file, *names = done.stdout.splitlines()
    assert file.startswith(str(tmp_path)), done.stderr
    assert names == sorted(served())
