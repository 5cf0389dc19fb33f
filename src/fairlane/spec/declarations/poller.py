"""The declaration of a poller: checks its URL, and that its messages fit the queue."""

from __future__ import annotations

from typing import ClassVar

from fairlane.errors import InvalidRequest
from fairlane.model.limits import LEASE_SECONDS_MAX, SECONDS_MAX
from fairlane.model.names import check_count, check_name
from fairlane.outbound.addresses import is_plain_url
from fairlane.spec import ir
from fairlane.spec import settings as readers
from fairlane.spec.declarations.declaration import (
    FLAG,
    NAME,
    NUMBER,
    SECONDS,
    Declaration,
    SettingCodec,
    Settings,
    choice,
)
from fairlane.spec.declarations.declaration import STRING as TEXT
from fairlane.spec.diagnostics import Diagnostics
from fairlane.spec.settings import Path
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
"""The type of the messages that a poller pushes."""


class PollerDeclaration(Declaration[ir.PollerSpec]):
    word, family = "poller", "pollers"
    defaults = ir.PollerSpec(url="", queue="")
    needed = ("url", "queue")
    settings: ClassVar[Settings] = dict.fromkeys(ir.PollerSpec.__struct_fields__, TEXT) | {
        "queue": NAME,
        "paging": choice("id", "token", "link"),
        "page_size": NUMBER,
        "ignore": SettingCodec(readers.strings),
        "every_seconds": SECONDS,
        "sweep_seconds": SECONDS,
        "may_be_empty": FLAG,
        "lease_seconds": SECONDS,
    }

    def check(self, found: Diagnostics, path: Path, name: str, poller: ir.PollerSpec) -> None:
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
            found.add((*path, "url"), "a poller needs a URL like https://host/path, without user or fragment")
        if poller.token_env is not None:
            found.variables((*path, "token_env"), (poller.token_env,))
        if known:
            hint = "a poller's message has `source`, `event`, `key` and `record`"
            found.fit((*path, "queue"), EVENT, poller.queue, what="messages of this poller never fit", hint=hint)
