"""Tracebacks of failed handlers, in the form in which they are kept with the error of a message.

They show where the handler failed and nothing of the message: no values of variables, and no texts of exceptions,
which often quote their input. The frames of fairlane itself are left out.
"""

from __future__ import annotations

import os
import traceback
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any

from fairlane.model.limits import TRACEBACK_BYTES_MAX
from fairlane.model.names import storable_end

_PACKAGE = str(Path(__file__).parents[1]) + os.sep
_RUNNERS = tuple(f"{Path(traceback.__file__).parent}/{name}" for name in ("asyncio/", "concurrent/", "threading.py"))
"""Modules of Python that stand between fairlane and the handler."""
_CHAIN_MAX = 5
"""Exceptions of one chain that are shown."""
_FRAMES_MAX = 100
"""Newest frames of one exception that are formatted."""
_GROUPED = "The above exception was the first one of the following group:"
_MEANWHILE = "During handling of the above exception, another exception occurred:"
_CAUSED = "The above exception was the direct cause of the following exception:"
_KEPT = "__fairlane_frames__"


def frames_of(error: BaseException) -> str | None:
    """Return the frames of an exception and of those that led to it, newest last. None if no frame is the app's.

    Only the newest frames of a long traceback are returned.
    """
    kept = getattr(error, _KEPT, None)
    if isinstance(kept, str):
        return kept
    parts = list(_chain(error))
    if not any(frames for _, frames, _ in parts):
        return None
    text = "\n".join(line for part in reversed(parts) for line in _lines(*part))
    return storable_end(text, bytes_max=TRACEBACK_BYTES_MAX)


def logged(error: BaseException) -> tuple[type[BaseException], BaseException, TracebackType | None]:
    """Return an exception as `exc_info` of a log line, without the frames of fairlane that called the handler."""
    start = error.__traceback__
    while start is not None and start.tb_frame.f_code.co_filename.startswith((_PACKAGE, *_RUNNERS)):
        start = start.tb_next
    return type(error), error, start or error.__traceback__


def call_with_frames(function: Callable[..., Any], *arguments: Any) -> Any:
    """Call a function in another process, which sends an exception back without its frames: keep them with it."""
    try:
        return function(*arguments)
    except Exception as error:
        with suppress(AttributeError):  # an exception without attributes is sent without frames
            setattr(error, _KEPT, frames_of(error))
        raise


def _chain(error: BaseException) -> Iterator[tuple[str, list[str], str]]:
    """Yield (name, frames, how it led to the next one) of an exception and of the earlier ones that led to it."""
    link, current, seen = "", error, set[int]()
    while id(current) not in seen and len(seen) < _CHAIN_MAX:
        seen.add(id(current))
        yield type(current).__qualname__, _frames(current.__traceback__), link
        if isinstance(current, BaseExceptionGroup):
            link, current = _GROUPED, current.exceptions[0]
        elif current.__cause__ is not None:
            link, current = _CAUSED, current.__cause__
        elif current.__context__ is not None and not current.__suppress_context__:
            link, current = _MEANWHILE, current.__context__


def _frames(start: TracebackType | None) -> list[str]:
    stack = traceback.StackSummary.extract(traceback.walk_tb(start), limit=-_FRAMES_MAX)
    own = [frame for frame in stack if not frame.filename.startswith(_PACKAGE)]
    while own and own[0].filename.startswith(_RUNNERS):
        del own[0]
    return traceback.StackSummary.from_list(own).format()


def _lines(name: str, frames: list[str], link: str) -> Iterator[str]:
    yield "Traceback (most recent call last):"
    yield from (frame.rstrip("\n") for frame in frames)
    yield name
    if link:
        yield from ("", link, "")
