"""`python -m tests.docs` rewrites every table of the pages that is generated from the code."""

from __future__ import annotations

from tests.docs import api, commands, errors, options, settings

for table in (api, commands, errors, options, settings):
    table.PAGE.write_text(table.written(), encoding="utf-8")
