"""The plan of a spec: the changes between two documents, and which of them may lose, refuse or expose messages."""

from __future__ import annotations

from typing import Any, cast
from urllib.parse import urlsplit

import msgspec
from msgspec.structs import replace

from fairlane.spec import ir
from fairlane.spec.declarations import DECLARATIONS
from fairlane.spec.declarations.declaration import Leaves
from fairlane.wire.specs import Change, Detail, Kind, Sign


def plan(before: ir.Spec | None, after: ir.Spec, *, first: bool = False) -> list[Change]:
    """Return the changes from one document to another, by kind and name.

    Two equal documents have no changes. With `first` nothing of the document was in force yet, so everything counts as
    new.
    """
    known = _hosts(after if first or before is None else before)
    before = before or ir.Spec(app=after.app)
    changes = []
    for declaration in DECLARATIONS:
        old, new = getattr(before, declaration.family), getattr(after, declaration.family)
        kind = cast(Kind, declaration.word)
        for name in sorted(old.keys() | new.keys()):
            if name not in new:
                changes.append(Change(sign="-", kind=kind, name=name, danger=declaration.removal_danger))
            elif name not in old:
                # Something new has nothing to lose, but it may let data in or out.
                details = [replace(detail, danger=None) for detail in _details({}, declaration.leaves(new[name]))]
                details = [replace(detail, danger=_leads_out(detail, known)) for detail in details]
                changes.append(Change(sign="+", kind=kind, name=name, details=details, danger=_opens(new[name])))
            elif details := _details(declaration.leaves(old[name]), declaration.leaves(new[name])):
                changes.append(Change(sign="~", kind=kind, name=name, details=details))
    return changes


def _details(before: Leaves, after: Leaves) -> list[Detail]:
    details = []
    for setting in [*after, *(setting for setting in before if setting not in after)]:
        old, new = before.get(setting), after.get(setting)
        if old == new:
            continue
        sign: Sign = "+" if setting not in before else "-" if setting not in after else "~"
        danger = _danger(setting, old, new)
        details.append(Detail(sign=sign, setting=setting, before=old, after=new, danger=danger))
    return details


def _host(value: Any) -> str | None:
    """Return the host of a `run` target or `url`, or None if it has none."""
    url = value.get("url") if isinstance(value, dict) else value
    return urlsplit(url).netloc.lower() if isinstance(url, str) else None


def _hosts(spec: ir.Spec) -> set[str | None]:
    urls = [command.run.url for command in spec.commands.values() if isinstance(command.run, ir.HttpRun)]
    return {_host(url) for url in (*urls, *(poller.url for poller in spec.pollers.values()))}


def _opens(part: object) -> str | None:
    """Return the danger of a new webhook that verifies no signature."""
    unsigned = isinstance(part, ir.WebhookSpec) and part.verify is None
    return "signatures are not checked: anyone who knows the URL can send" if unsigned else None


def _leads_out(detail: Detail, known: set[str | None]) -> str | None:
    host = _host(detail.after) if detail.setting in ("run", "url") else None
    return f"calls go to {host}, which is new in the spec" if host and host not in known else None


# Settings that delete messages by age. A lower value deletes more messages.
_AGES = {
    "retention.max_age_seconds": "older messages are deleted, read or not",
    "retention.completed_max_age_seconds": "older messages are deleted when every group has finished them",
    "retention.dead_letter_max_age_seconds": "older dead letters are deleted",
    "delivery.ttl_seconds": "older messages expire",
    "delivery.max_wait_seconds": "messages that waited longer expire",
}


def _danger(setting: str, old: Any, new: Any) -> str | None:
    if setting in _AGES:
        return _AGES[setting] if new and (not old or new < old) else None
    if setting == "ordering":
        if "unordered" in (old, new):
            return "a queue with partitions stays ordered or unordered: this is refused"
        return "waiting messages keep their partitions, new ones get others"
    if setting == "key":
        return "new messages of a key go to another partition than waiting ones"
    if setting == "delivery.on_expiry" and new == "drop":
        return "expired messages are not kept as dead letters"
    if setting.startswith("message_type") and _narrows(old, new):
        return "messages that do not fit are refused"
    if setting == "map_to" and new is None:
        return "messages no longer become commands: the group of its commands is deleted, with its dead letters"
    return _weakens(setting, old, new)


def _weakens(setting: str, old: Any, new: Any) -> str | None:
    """Return the danger of a change that weakens a protection, or None."""
    if setting == "verify" and old is not None:
        if new is None:
            return "signatures are no longer checked: anyone who knows the URL can send"
        return "signatures are checked differently: current senders may be refused and others accepted"
    if setting == "encrypted" and old:
        return "new messages are stored unencrypted"
    if setting == "secret_env":
        return "calls are signed with a different secret, or not at all"
    if setting == "token_env":
        return "a different secret, or none, is sent to its URL"
    if setting in ("run", "url") and _host(new) is not None:
        return "messages are sent to a different URL" if setting == "run" else "a different URL gets the token"
    return None


def _narrows(old: str | None, new: str | None) -> bool:
    """Return True if a field accepts fewer values than before."""
    if new is None:
        return False
    if not new.endswith("?") and (old is None or old.endswith("?")):
        return True
    return old is not None and new.rstrip("?") not in ("json", old.rstrip("?"))


def render(changes: list[Change]) -> str:
    """Render a plan for a terminal: a line for each declaration and setting, with dangers marked `!`."""
    lines = []
    for change in changes:
        lines.append(f"{change.sign} {change.kind} {change.name}{_marked(change.danger)}")
        lines += [f"    {_shown(detail)}{_marked(detail.danger)}" for detail in change.details]
    counts = [sum(change.sign == sign for change in changes) for sign in "+~-"]
    summary = f"{counts[0]} to add, {counts[1]} to change, {counts[2]} to remove"
    dangers = sum(len(change.dangers) for change in changes)
    lines.append(f"{summary}; changes marked with ! may lose, refuse or expose messages." if dangers else f"{summary}.")
    return "\n".join(lines)


def _shown(detail: Detail) -> str:
    old, new = (msgspec.json.encode(value).decode() for value in (detail.before, detail.after))
    values = {"+": new, "-": old, "~": f"{old} -> {new}"}[detail.sign]
    return f"{detail.sign} {detail.setting}: {values}"


def _marked(danger: str | None) -> str:
    return f"  ! {danger}" if danger else ""
