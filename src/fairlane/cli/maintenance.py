"""`fairlane maintenance ...`"""

from __future__ import annotations

from typing import Annotated, Literal

from fairlane.cli.verb import Client, Noun, Shown, arg, verb

app = Noun("maintenance")

What = Annotated[
    Literal["pops", "pushes"], arg("", "Pops answer that there is nothing; pushes wait in the brokers' journals.")
]
_TEXTS = {
    ("pops", True): "Pops answer that there is nothing.",
    ("pops", False): "Pops deliver messages.",
    ("pushes", True): "Pushes wait in the journal.",
    ("pushes", False): "Pushes are stored.",
}


@verb(app)
async def show(client: Client) -> Shown:
    """Say whether all pops, or all pushes, are paused."""
    found = await client.status.maintenance()
    text = f"{_TEXTS['pops', found.pop_maintenance_mode]} {_TEXTS['pushes', found.maintenance_mode]}"
    return Shown(found, text)


@verb(app)
async def pause(client: Client, what: What) -> Shown:
    """Pause all pops, or all pushes, at every broker of the store."""
    return await _turn(client, what, paused=True)


@verb(app)
async def resume(client: Client, what: What) -> Shown:
    """Let all pops, or all pushes, go on."""
    return await _turn(client, what, paused=False)


async def _turn(client: Client, what: str, *, paused: bool) -> Shown:
    await (client.pause_pops(paused) if what == "pops" else client.pause_pushes(paused))
    return Shown({what: "paused" if paused else "resumed"}, _TEXTS[what, paused])
