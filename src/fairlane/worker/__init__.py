"""Workers: take messages, give them to an app's handlers, and ack by the verdicts."""

from fairlane.worker.worker import Worker

__all__ = ["Worker"]
