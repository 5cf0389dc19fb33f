"""The nouns of the language, each declared once in a module of its own."""

from __future__ import annotations

from typing import Any

from fairlane.spec.nouns.command import Command
from fairlane.spec.nouns.noun import Noun
from fairlane.spec.nouns.poller import Poller
from fairlane.spec.nouns.queue import Queue
from fairlane.spec.nouns.schedule import Schedule
from fairlane.spec.nouns.webhook import Webhook

NOUNS: tuple[Noun[Any], ...] = (Queue(), Command(), Webhook(), Schedule(), Poller())
