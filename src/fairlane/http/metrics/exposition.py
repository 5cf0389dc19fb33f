"""The answer to a scrape: what each process counts by itself, and what is read from the store when somebody asks."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from fairlane.http.metrics.families import Families, Flat
from fairlane.http.metrics.process import Snapshot, add_journal, add_process, snapshot

if TYPE_CHECKING:
    from fairlane.http.app import App

_decode = msgspec.json.Decoder(Snapshot).decode


async def exposition(app: App) -> bytes:
    """Always an answer: what the store does not say is left out, and so is a process that does not answer."""
    from_store = await app.store_metrics.text()
    out = Families()
    out.gauge("store_up", "1 while the store answers, 0 while it does not.", int(from_store is not None))
    if app.siblings is None:
        add_process(out, app)
        add_journal(out, app)
        return out.text() + (from_store or b"")
    answers = await app.siblings.ask("metrics")
    found = {number: read for number, answer in answers.items() if (read := _read(answer)) is not None}
    found[app.siblings.number] = snapshot(app)
    up = [({"worker": str(number)}, int(number in found)) for number in sorted({*answers, *found})]
    out.gauge("process_up", "1 for each process of this broker that answers.", up)
    for number in sorted(found):  # labelled, so that a process which begins anew is a counter that does
        out.add(found[number].process, {"worker": str(number)})
    out.add(next((one.journal for one in found.values() if one.journal), []), {})
    return out.text() + (from_store or b"")


async def own_families(app: App) -> list[Flat]:
    """What this process alone has to tell, the first one also what all share; of no store nothing is told."""
    number = None if app.siblings is None else app.siblings.number
    own, out = snapshot(app), Families()
    out.add(own.process, {} if number is None else {"worker": str(number)})
    out.add(own.journal, {})
    if not number:
        up = await app.store_metrics.count()
        out.gauge("store_up", "1 while the store answers, 0 while it does not.", int(up))
        out.add(app.store_metrics.counted.flat() if up else [], {})
    return out.flat()


def _read(answer: bytes | None) -> Snapshot | None:
    try:
        return None if answer is None else _decode(answer)
    except msgspec.MsgspecError:  # cut off, or a process of another version
        return None
