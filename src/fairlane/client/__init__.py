"""The client of a broker, over HTTP. Importing it loads no server code."""

from fairlane.client.buffer import Buffer
from fairlane.client.client import Client
from fairlane.client.consume import Batched
from fairlane.client.operations import PushHandle, QueuedPush
from fairlane.client.transactions import Transaction
from fairlane.model.batch import Batch
from fairlane.model.message import Message
from fairlane.model.names import DEFAULT_SERVER
from fairlane.model.verdict import Dead, Done, Fail, Retry, Verdict
from fairlane.runtime.consumer import Consumer
from fairlane.wire.browse import BrowsedMessage, MessageHead, MessagePage
from fairlane.wire.dead_letters import DeadLetter
from fairlane.wire.groups import GroupSummary
from fairlane.wire.operations import OperationState
from fairlane.wire.queues import Counts, PartitionDetail, QueueDetail, QueueSummary

__all__ = [
    "DEFAULT_SERVER",
    "Batch",
    "Batched",
    "BrowsedMessage",
    "Buffer",
    "Client",
    "Consumer",
    "Counts",
    "Dead",
    "DeadLetter",
    "Done",
    "Fail",
    "GroupSummary",
    "Message",
    "MessageHead",
    "MessagePage",
    "OperationState",
    "PartitionDetail",
    "PushHandle",
    "QueueDetail",
    "QueueSummary",
    "QueuedPush",
    "Retry",
    "Transaction",
    "Verdict",
]
