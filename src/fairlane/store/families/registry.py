"""The families that are written once for both stores."""

from __future__ import annotations

from typing import TypeVar

from fairlane.store.families.api_keys import ApiKeys
from fairlane.store.families.audit import Audit
from fairlane.store.families.browse import Browse, MessageReader
from fairlane.store.families.cancellations import Cancellations
from fairlane.store.families.data_keys import DataKeys
from fairlane.store.families.dead_letters import DeadLetters
from fairlane.store.families.effects import Effects
from fairlane.store.families.fan_ins import FanIns
from fairlane.store.families.flags import Flags
from fairlane.store.families.groups import Groups
from fairlane.store.families.history import History
from fairlane.store.families.leadership import Leadership
from fairlane.store.families.limits import GroupLimits
from fairlane.store.families.pauses import Pauses
from fairlane.store.families.progress import ProgressReports
from fairlane.store.families.query import Family, QueryRunner
from fairlane.store.families.queues import Queues
from fairlane.store.families.retention import Retention
from fairlane.store.families.schedules import Schedules
from fairlane.store.families.sessions import Sessions
from fairlane.store.families.snoozes import Snoozes
from fairlane.store.families.sources import Sources
from fairlane.store.families.specs import Specs
from fairlane.store.families.staged import Staged
from fairlane.store.families.statistics import Statistics
from fairlane.store.families.tenants import Tenants
from fairlane.store.families.unique_keys import UniqueKeys
from fairlane.store.families.workers import Workers

F = TypeVar("F", bound=Family)


class StoreFamilies:
    def __init__(self, runner: QueryRunner, messages: MessageReader) -> None:
        self._runner = runner
        self.tenants = Tenants(runner)
        self.queues = Queues(runner)
        self.groups = Groups(runner)
        self.dead_letters = DeadLetters(runner, self.queues)
        self.browse = Browse(runner, messages)
        self.cancellations = Cancellations(runner)
        self.limits = GroupLimits(runner)
        self.progress_reports = ProgressReports(runner)
        self.retention = Retention(runner, self.browse)
        self.statistics = Statistics(runner)
        self.history = History(runner)
        self.flags = Flags(runner)
        self.pauses = Pauses(runner)
        self.leadership = Leadership(runner)
        self.data_keys = DataKeys(runner)
        self.api_keys = ApiKeys(runner)
        self.sessions = Sessions(runner)
        self.snoozes = Snoozes(runner)
        self.audit = Audit(runner)
        self.schedules = Schedules(runner)
        self.workers = Workers(runner)
        self.sources = Sources(runner)
        self.effects = Effects(runner)
        self.staged = Staged(runner)
        self.fan_ins = FanIns(runner)
        self.unique_keys = UniqueKeys(runner, messages)
        self.specs = Specs(runner, self.queues, self.groups)

    def family(self, kind: type[F]) -> F:
        """Create a family that another package defines."""
        return kind(self._runner)
