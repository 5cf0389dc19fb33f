"""The table of settings in docs/serving.md. `python -m tests.docs` rewrites it."""

from __future__ import annotations

import ast
import inspect
from itertools import pairwise
from pathlib import Path

from fairlane import config
from fairlane.config import Settings, flags

PAGE = Path(__file__).parents[2] / "docs/serving.md"
BEGIN, END = "<!-- settings: begin -->\n", "<!-- settings: end -->\n"

# Pages that say more about a setting.
MORE = {
    "host": "security.md#who-can-reach-it",
    "socket": "deploy.md#a-unix-socket",
    "hooks_listen": "deploy.md#webhooks-from-the-internet",
    "metrics_listen": "monitoring.md#metrics",
    "tls_cert": "deploy.md#tls",
    "trusted_proxies": "deploy.md#behind-a-proxy",
    "peer_share": "deploy.md#what-one-address-may-take",
    "workers": "#workers",
    "otel": "monitoring.md#tracing",
    "data_dir": "#the-data-directory",
    "listen_url": "#behind-a-pooler",
    "statement_cache": "#behind-a-pooler",
    "allowed_hosts": "#hosts",
    "cors_origin": "#browsers",
    "secret_names": "spec-language.md#applying",
    "outbound_allow": "commands.md#where-calls-may-go",
    "pollers": "spec-language.md#pollers",
    "metrics_series_max": "monitoring.md#metrics",
    "inflight_bytes_max": "#memory-for-clients",
    "tail_cache_bytes": "#memory-for-new-messages",
    "connections_max": "#limits-of-a-connection",
    "journal": "load.md#the-store-is-away",
    "wait_seconds_max": "load.md#busy",
    "failed_operations_seconds": "load.md#operations",
    "encryption_key": "queues.md#encryption",
    "retention_interval_seconds": "queues.md#retention",
}


def table() -> str:
    helps, notes = flags(), _notes()
    lines = ["| setting | default | meaning |\n", "|---|---|---|\n"]
    for name, default in zip(Settings.__struct_fields__, Settings.__struct_defaults__, strict=True):
        flag = f"--{'[no-]' if default is True else ''}{name.replace('_', '-')}"
        shown = f"`{flag}`" if name in helps else f"`FAIRLANE_{name.upper()}`"
        sentences = [one.rstrip(".") for one in (helps.get(name), notes.get(name)) if one]
        if name in MORE:
            sentences.append(f"[More]({MORE[name]})")
        lines.append(f"| {shown} | {_default(default)} | {'. '.join(sentences)} |\n")
    return "".join(lines)


def _default(value: object) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, int):
        return f"{value:,}" if value >= 10_000 else str(value)
    return "" if value in (None, "") else f"`{value}`" if isinstance(value, str) else f"{value:g}"


def _notes() -> dict[str, str]:
    """Return the docstrings of the settings in their class."""
    [body] = [
        one.body
        for one in ast.parse(inspect.getsource(config)).body
        if isinstance(one, ast.ClassDef) and one.name == "Settings"
    ]
    found = {}
    for field, note in pairwise(body):
        match field, note:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                found[name] = " ".join(text.split())
    return found


def written() -> str:
    """Return the page with an up-to-date table."""
    before, rest = PAGE.read_text(encoding="utf-8").split(BEGIN)
    return f"{before}{BEGIN}{table()}{END}{rest.split(END)[1]}"
