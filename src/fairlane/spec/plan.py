"""The plan of a spec: what one document changes of another, and by what messages may be lost, refused or exposed."""

from __future__ import annotations

from typing import Any, cast
from urllib.parse import urlsplit

import msgspec
from msgspec.structs import replace

from fairlane.spec import ir
from fairlane.spec.nouns import NOUNS
from fairlane.spec.nouns.noun import Leaves
from fairlane.wire.specs import Change, Detail, Kind, Sign


def plan(before: ir.Spec | None, after: ir.Spec, *, first: bool = False) -> list[Change]:
    """The changes from one document to another, by kind and name. The same document twice changes nothing. `first`:
    nothing of it was in force yet, so that all is new to whoever applies it."""
    known = _hosts(after if first or before is None else before)
    before = before or ir.Spec(app=after.app)
    changes = []
    for noun in NOUNS:
        old, new = getattr(before, noun.family), getattr(after, noun.family)
        kind = cast(Kind, noun.word)
        for name in sorted(old.keys() | new.keys()):
            if name not in new:
                changes.append(Change(sign="-", kind=kind, name=name, danger=noun.gone))
            elif name not in old:
                # A new thing has nothing to lose, but may be a way in or out.
                details = [replace(detail, danger=None) for detail in _details({}, noun.leaves(new[name]))]
                details = [replace(detail, danger=_leads_out(detail, known)) for detail in details]
                changes.append(Change(sign="+", kind=kind, name=name, details=details, danger=_opens(new[name])))
            elif details := _details(noun.leaves(old[name]), noun.leaves(new[name])):
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
    """Where a `run` or a `url` leads, if it leads out."""
    url = value.get("url") if isinstance(value, dict) else value
    return urlsplit(url).netloc.lower() if isinstance(url, str) else None


def _hosts(spec: ir.Spec) -> set[str | None]:
    urls = [command.run.url for command in spec.commands.values() if isinstance(command.run, ir.HttpRun)]
    return {_host(url) for url in (*urls, *(poller.url for poller in spec.pollers.values()))}


def _opens(part: object) -> str | None:
    """Return the danger of a new webhook that checks no signature."""
    unsigned = isinstance(part, ir.WebhookSpec) and part.verify is None
    return "signatures are not checked: whoever knows the URL may send" if unsigned else None


def _leads_out(detail: Detail, known: set[str | None]) -> str | None:
    host = _host(detail.after) if detail.setting in ("run", "url") else None
    return f"calls leave for {host}, which the spec did not name before" if host and host not in known else None


# Settings by which messages go when they are this old. A shorter time takes some that would have stayed.
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
        return "messages that wait keep their partitions, and new ones get others"
    if setting == "key":
        return "new messages of a key go to another partition than those that wait"
    if setting == "delivery.on_expiry" and new == "drop":
        return "expired messages are not kept as dead letters"
    if setting.startswith("message_type") and _narrows(old, new):
        return "messages that do not fit are refused"
    if setting == "map_to" and new is None:
        return "messages no longer become commands: the group of its commands is deleted, with its dead letters"
    return _weakens(setting, old, new)


def _weakens(setting: str, old: Any, new: Any) -> str | None:
    """What a change opens to others, of what was protected before."""
    if setting == "verify" and old is not None:
        if new is None:
            return "signatures are not checked any more: whoever knows the URL may send"
        return "signatures are checked in another way: whoever has what that needs may send, and others are refused"
    if setting == "encrypted" and old:
        return "new messages are stored in clear"
    if setting == "secret_env":
        return "calls are signed with another secret, or with none"
    if setting == "token_env":
        return "another secret is sent to its URL, or none"
    if setting in ("run", "url") and _host(new) is not None:
        return "messages are sent to another URL" if setting == "run" else "another URL is read, and sent its token"
    return None


def _narrows(old: str | None, new: str | None) -> bool:
    """Whether a part of a message must be what it did not have to be."""
    if new is None:
        return False
    if not new.endswith("?") and (old is None or old.endswith("?")):
        return True
    return old is not None and new.rstrip("?") not in ("json", old.rstrip("?"))


def render(changes: list[Change]) -> str:
    """A plan for a terminal: a line for each thing and each setting, and what may be lost marked with `!`."""
    lines = []
    for change in changes:
        lines.append(f"{change.sign} {change.kind} {change.name}{_marked(change.danger)}")
        lines += [f"    {_shown(detail)}{_marked(detail.danger)}" for detail in change.details]
    counts = [sum(change.sign == sign for change in changes) for sign in "+~-"]
    summary = f"{counts[0]} to add, {counts[1]} to change, {counts[2]} to remove"
    dangers = sum(len(change.dangers) for change in changes)
    lines.append(f"{summary}; what is marked with ! may lose, refuse or expose messages." if dangers else f"{summary}.")
    return "\n".join(lines)


def _shown(detail: Detail) -> str:
    old, new = (msgspec.json.encode(value).decode() for value in (detail.before, detail.after))
    values = {"+": new, "-": old, "~": f"{old} -> {new}"}[detail.sign]
    return f"{detail.sign} {detail.setting}: {values}"


def _marked(danger: str | None) -> str:
    return f"  ! {danger}" if danger else ""
