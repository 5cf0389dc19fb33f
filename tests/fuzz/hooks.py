"""What schemathesis loads before it begins."""

from __future__ import annotations

from typing import Any

import schemathesis


@schemathesis.hook
def before_call(context: Any, case: Any, kwargs: Any) -> None:
    """A poll that waits for as long as it likes would only make the run long: nobody pushes what it waits for."""
    if case.query and "wait" in case.query and case.path.startswith("/api/v1/pop"):
        case.query["timeout"] = "50"
