"""The log format: lines for people, or JSON for programs."""

from __future__ import annotations

import json
import logging
import sys
import time


class _Json(logging.Formatter):
    def __init__(self, worker: int | None) -> None:
        super().__init__()
        self._worker = worker

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, object] = {
            "at": time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created)) + f".{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if self._worker is not None:
            line["worker"] = self._worker
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False)


def log_as(log_format: str, *, worker: int | None = None) -> None:
    """Log to stderr from now on; `worker` is named in every line."""
    who = "" if worker is None else f"worker {worker}: "
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        _Json(worker) if log_format == "json" else logging.Formatter(f"%(asctime)s %(levelname)-7s {who}%(message)s")
    )
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)
