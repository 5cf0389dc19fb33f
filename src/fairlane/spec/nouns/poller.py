"""A poller of the language: whether it leads somewhere, and whether what it pushes fits."""

from __future__ import annotations

from typing import ClassVar

from fairlane.errors import InvalidRequest
from fairlane.model.limits import LEASE_SECONDS_MAX, SECONDS_MAX
from fairlane.model.names import check_count, check_name
from fairlane.outbound.addresses import is_plain_url
from fairlane.spec import ir, reader
from fairlane.spec.findings import Findings
from fairlane.spec.nouns.noun import FLAG, NAME, NUMBER, SECONDS, Noun, Setting, Settings, choice
from fairlane.spec.nouns.noun import STRING as TEXT
from fairlane.spec.reader import Path
from fairlane.spec.types import STRING
from fairlane.wire.sources import RECORDS_MAX

EVENT = ir.RecordType(
    fields={
        "source": STRING,
        "event": ir.EnumType(choices=("created", "changed", "deleted")),
        "key": STRING,
        "record": ir.Scalar(of="json"),
    }
)
"""What a poller pushes."""


class Poller(Noun[ir.PollerSpec]):
    word, family = "poller", "pollers"
    usual = ir.PollerSpec(url="", queue="")
    needed = ("url", "queue")
    settings: ClassVar[Settings] = dict.fromkeys(ir.PollerSpec.__struct_fields__, TEXT) | {
        "queue": NAME,
        "paging": choice("id", "token", "link"),
        "page_size": NUMBER,
        "ignore": Setting(reader.strings),
        "every_seconds": SECONDS,
        "sweep_seconds": SECONDS,
        "may_be_empty": FLAG,
        "lease_seconds": SECONDS,
    }

    def check(self, found: Findings, path: Path, name: str, poller: ir.PollerSpec) -> None:
        known = found.has_queue((*path, "queue"), poller.queue)
        try:
            check_name("the name of a poller", name)
            check_count("page_size", poller.page_size, least=1, most=RECORDS_MAX)
            check_count("every_seconds", poller.every_seconds, least=1, most=SECONDS_MAX)
            check_count("sweep_seconds", poller.sweep_seconds, least=0, most=SECONDS_MAX)
            check_count("lease_seconds", poller.lease_seconds, least=1, most=LEASE_SECONDS_MAX)
        except InvalidRequest as error:
            found.add((*path, str(error).split()[0]), str(error))
        if not is_plain_url(poller.url):
            found.add((*path, "url"), "a poller has a URL like https://host/path, without user and fragment")
        if poller.token_env is not None:
            found.variables((*path, "token_env"), (poller.token_env,))
        if known:
            hint = "a poller's message has `source`, `event`, `key` and `record`"
            found.fit((*path, "queue"), EVENT, poller.queue, what="messages of this poller never fit", hint=hint)
