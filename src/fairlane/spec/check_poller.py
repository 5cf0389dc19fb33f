"""Pollers of a document: whether they lead somewhere, and whether what they push fits."""

from __future__ import annotations

from fairlane.errors import InvalidRequest
from fairlane.model.limits import LEASE_SECONDS_MAX, SECONDS_MAX
from fairlane.model.names import check_count, check_name
from fairlane.model.source import RECORDS_MAX
from fairlane.outbound.addresses import is_plain_url
from fairlane.spec import ir
from fairlane.spec.check_webhook import check_variables, unknown_queue
from fairlane.spec.finding import Finding
from fairlane.spec.fits import STRING, misfit

EVENT = ir.RecordType(
    fields={
        "source": STRING,
        "event": ir.EnumType(choices=("created", "changed", "deleted")),
        "key": STRING,
        "record": ir.Scalar(of="json"),
    }
)
"""What a poller pushes."""


def check_poller(spec: ir.Spec, name: str, poller: ir.PollerSpec) -> list[Finding]:
    path = ("pollers", name)
    findings = unknown_queue(spec, (*path, "queue"), poller.queue)
    try:
        check_name("the name of a poller", name)
        check_count("page_size", poller.page_size, least=1, most=RECORDS_MAX)
        check_count("every_seconds", poller.every_seconds, least=1, most=SECONDS_MAX)
        check_count("sweep_seconds", poller.sweep_seconds, least=0, most=SECONDS_MAX)
        check_count("lease_seconds", poller.lease_seconds, least=1, most=LEASE_SECONDS_MAX)
    except InvalidRequest as error:
        findings.append(Finding((*path, str(error).split()[0]), str(error)))
    if not is_plain_url(poller.url):
        findings.append(Finding((*path, "url"), "a poller has a URL like https://host/path, without user and fragment"))
    if poller.token_env is not None:
        findings += check_variables((*path, "token_env"), (poller.token_env,))
    wanted = spec.queues[poller.queue].message_type if poller.queue in spec.queues else None
    if wanted is not None and (why := misfit(EVENT, wanted)):
        hint = "a poller's message has `source`, `event`, `key` and `record`"
        findings.append(Finding((*path, "queue"), f"messages of this poller never fit `{poller.queue}`: {why}", hint))
    return findings
