"""Workers: pop messages, run an app's handlers, and ack with their verdicts."""

from fairlane.worker.worker import Worker

__all__ = ["Worker"]
