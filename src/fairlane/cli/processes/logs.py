"""Logging as text or JSON. Similar warnings are written once a minute, with a count of the suppressed ones.

Code logs like `log.warning("cannot pop from queue %(queue)r: %(error)s", {"queue": name, "error": error})`. Each value
is a field of its own in JSON, so that lines of different processes can be correlated.
"""

from __future__ import annotations

import contextlib
import copy
import json
import logging
import re
import sys
import time
from collections.abc import Callable, Mapping
from typing import Final, TextIO

from fairlane.otel import tracing

REPEAT_SECONDS: Final = 60.0
KINDS_MAX: Final = 1000
DRIVERS: Final = ("asyncio", "asyncpg")
"""Loggers of libraries that log one traceback for each request on a lost connection."""
_NUMBER: Final = re.compile(r"(?<![\w-])(?:\d+(?:\.\d+)?|[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})(?![\w-])")
"""A number or an id in a log line."""


class _TextFormatter(logging.Formatter):
    def __init__(self, worker: int | None) -> None:
        who = "" if worker is None else f"worker {worker}: "
        form = f"%(asctime)s %(levelname)-7s {who}%(message)s%(repeats)s%(traced)s"
        super().__init__(form, defaults={"repeats": "", "traced": ""})


class _JsonFormatter(logging.Formatter):
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
        extra = {
            "correlation_id": getattr(record, "correlation_id", None),
            "left_out": getattr(record, "left_out", None),
            "trace_id": getattr(record, "trace_id", None),
        }
        fields = {**extra, **(record.args if isinstance(record.args, Mapping) else {})}
        line |= {name: _plain(value) for name, value in fields.items() if value is not None and name not in line}
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False)


def _plain(value: object) -> object:
    return value if isinstance(value, str | int | float) else str(value)


class _Kind:
    """A kind of similar records: the first one, when the next may be written, and how many were suppressed."""

    def __init__(self, first: logging.LogRecord, until: float) -> None:
        self.first = first
        self.until = until
        self.left_out = 0


class SuppressingHandler(logging.StreamHandler[TextIO]):
    """A log handler that writes similar warnings and errors at most once in `seconds`.

    Records are similar if they differ only in numbers and ids, or come from the same defect in the code. The next
    such line, or a line after `seconds`, counts the records left out.
    """

    def __init__(
        self, stream: TextIO, *, seconds: float = REPEAT_SECONDS, clock: Callable[[], float] = time.monotonic
    ) -> None:
        super().__init__(stream)
        self._seconds = seconds
        self._clock = clock
        self._kinds: dict[object, _Kind] = {}

    def emit(self, record: logging.LogRecord) -> None:
        now = self._clock()
        record = _one_line(record)
        if (trace_id := tracing.trace_id(tracing.current_context())) is not None:
            record.trace_id, record.traced = trace_id, f" (trace {trace_id})"
        kind = _kind_of(record) if record.levelno >= logging.WARNING else None
        known = self._kinds.get(kind)
        if known is not None and now < known.until:
            known.left_out += 1
            return
        self._write_counts([other for other, one in self._kinds.items() if one.until <= now and other != kind])
        if known is not None and known.left_out:
            record.left_out = known.left_out
            record.repeats = f" ({known.left_out} more like this since)"
        if kind is not None:
            if len(self._kinds) >= KINDS_MAX:
                self._write_counts(list(self._kinds))
            self._kinds[kind] = _Kind(record, now + self._seconds)
        super().emit(record)

    def _write_counts(self, kinds: list[object]) -> None:
        for kind in kinds:
            one = self._kinds.pop(kind)
            if one.left_out:
                last = copy.copy(one.first)
                last.exc_info = last.exc_text = None
                last.created = time.time()
                last.msecs = last.created % 1 * 1000
                last.left_out, last.repeats = one.left_out, f" ({one.left_out} more like this)"
                super().emit(last)

    def write_counts(self) -> None:
        """Write the number of records suppressed so far."""
        with self.lock or contextlib.nullcontext():
            self._write_counts(list(self._kinds))

    def close(self) -> None:
        self.write_counts()
        super().close()


def _kind_of(record: logging.LogRecord) -> object:
    if record.exc_info and record.exc_info[1] is not None:
        trace = record.exc_info[1].__traceback__
        while trace is not None and trace.tb_next is not None:
            trace = trace.tb_next
        where = trace and (trace.tb_frame.f_code.co_filename, trace.tb_lineno)
        return record.name, record.msg, type(record.exc_info[1]), where
    return record.name, _NUMBER.sub("#", record.getMessage())


def _one_line(record: logging.LogRecord) -> logging.LogRecord:
    """Shorten a driver's report of a lost connection to one line. Its details may contain stored data."""
    error = record.exc_info[1] if record.exc_info else None
    lost = isinstance(error, OSError | TimeoutError) or type(error).__module__.partition(".")[0] == "asyncpg"
    if error is None or not lost or record.name.partition(".")[0] not in DRIVERS:
        return record
    record = copy.copy(record)
    text = record.getMessage().partition("\n")[0]
    record.msg, record.args = "%s: %s: %s", (text, type(error).__name__, str(error).partition("\n")[0])
    record.exc_info = record.exc_text = None
    return record


def log_stopped(log: logging.Logger) -> None:
    """Write pending counts of suppressed records, then log that the process has stopped."""
    for handler in logging.getLogger().handlers:
        if isinstance(handler, SuppressingHandler):
            handler.write_counts()
    log.info("stopped")


def configure_logging(log_format: str, *, worker: int | None = None) -> None:
    """Log to stderr in this format. Every line contains `worker`."""
    handler = SuppressingHandler(sys.stderr)
    handler.setFormatter(_JsonFormatter(worker) if log_format == "json" else _TextFormatter(worker))
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)
