"""Apps: functions that do the work of queues. `fairlane worker module:app` runs one."""

from fairlane.app.app import App
from fairlane.app.calls import Calls, Reply
from fairlane.app.context import Context
from fairlane.model.verdict import Dead, Done, Fail, Retry

__all__ = ["App", "Calls", "Context", "Dead", "Done", "Fail", "Reply", "Retry"]
