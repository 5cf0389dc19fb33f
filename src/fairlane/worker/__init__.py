"""Workers: take messages, give them to an app's handlers, and say what became of them."""

from fairlane.worker.worker import Worker

__all__ = ["Worker"]
