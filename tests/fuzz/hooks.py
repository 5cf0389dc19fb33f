"""What schemathesis loads before it begins."""

from __future__ import annotations

from typing import Any

import schemathesis


@schemathesis.hook
def before_call(context: Any, case: Any, kwargs: Any) -> None:
    """Who waits for as long as he likes would only make the run long: nobody pushes, or acks, what he waits for."""
    if case.query and "wait" in case.query:
        case.query["timeout"] = "50"
