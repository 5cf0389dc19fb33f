"""Coverage-guided fuzzing of one parser with atheris: `python -m tests.fuzz.guided TARGET SECONDS DIRECTORY`."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["fairlane"]):
    from tests.fuzz.parsers import CORPUS, TARGETS

name, seconds, directory = sys.argv[1:]
found = Path(directory) / name
shutil.copytree(CORPUS / name, found, dirs_exist_ok=True)  # findings are written there and not into the tree
options = ["-timeout=10", "-rss_limit_mb=2048", f"-artifact_prefix={found}-", "-print_final_stats=1", "-verbosity=0"]
atheris.Setup([sys.argv[0], str(found), f"-max_total_time={seconds}", *options], TARGETS[name])
atheris.Fuzz()
