"""All families of a store that are written once."""

from __future__ import annotations

from fairlane.store.families.api_keys import ApiKeys
from fairlane.store.families.audit import Audit
from fairlane.store.families.browse import Browse, Messages
from fairlane.store.families.dead_letters import DeadLetters
from fairlane.store.families.effects import Effects
from fairlane.store.families.flags import Flags
from fairlane.store.families.groups import Groups
from fairlane.store.families.keys import Keys
from fairlane.store.families.leadership import Leadership
from fairlane.store.families.pauses import Pauses
from fairlane.store.families.port import Port
from fairlane.store.families.queues import Queues
from fairlane.store.families.retention import Retention
from fairlane.store.families.schedules import Schedules
from fairlane.store.families.sessions import Sessions
from fairlane.store.families.sources import Sources
from fairlane.store.families.specs import Specs
from fairlane.store.families.statistics import Statistics
from fairlane.store.families.streams import Streams
from fairlane.store.families.tenants import Tenants
from fairlane.store.families.traces import Traces
from fairlane.store.families.workers import Workers


class Families:
    def __init__(self, port: Port, messages: Messages) -> None:
        self.tenants = Tenants(port)
        self.queues = Queues(port)
        self.groups = Groups(port)
        self.dead_letters = DeadLetters(port, self.queues)
        self.browse = Browse(port, messages)
        self.retention = Retention(port, self.browse)
        self.statistics = Statistics(port)
        self.streams = Streams(port)
        self.traces = Traces(port)
        self.flags = Flags(port)
        self.pauses = Pauses(port)
        self.leadership = Leadership(port)
        self.keys = Keys(port)
        self.api_keys = ApiKeys(port)
        self.sessions = Sessions(port)
        self.audit = Audit(port)
        self.schedules = Schedules(port)
        self.workers = Workers(port)
        self.sources = Sources(port)
        self.effects = Effects(port)
        self.specs = Specs(port, self.queues, self.groups)
