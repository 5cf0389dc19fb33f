"""The declarations of the queue language, one module each."""

from __future__ import annotations

from typing import Any

from fairlane.spec.declarations.command import CommandDeclaration
from fairlane.spec.declarations.declaration import Declaration
from fairlane.spec.declarations.poller import PollerDeclaration
from fairlane.spec.declarations.queue import QueueDeclaration
from fairlane.spec.declarations.schedule import ScheduleDeclaration
from fairlane.spec.declarations.webhook import WebhookDeclaration

DECLARATIONS: tuple[Declaration[Any], ...] = (
    QueueDeclaration(),
    CommandDeclaration(),
    WebhookDeclaration(),
    ScheduleDeclaration(),
    PollerDeclaration(),
)
