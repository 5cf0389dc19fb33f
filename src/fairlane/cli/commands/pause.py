"""`fairlane pause`: pause and resume all pops or pushes."""

from __future__ import annotations

from typing import Annotated, Literal

from fairlane.cli.toolkit.command import Client, CommandGroup, Output, arg, client_command

app = CommandGroup("pause")

What = Annotated[
    Literal["pops", "pushes"],
    arg(None, "Paused pops return no messages. Paused pushes are accepted and wait in the journal."),
]
_TEXTS = {
    ("pops", True): "All pops are paused and return nothing.",
    ("pops", False): "Pops are not paused.",
    ("pushes", True): "All pushes are paused and wait in the journal.",
    ("pushes", False): "Pushes are not paused.",
}


@client_command(app)
async def show(client: Client) -> Output:
    """Show whether all pops or all pushes are paused."""
    found = await client.pauses.everywhere()
    return Output(found, f"{_TEXTS['pops', found.pops]} {_TEXTS['pushes', found.pushes]}")


@client_command(app, "set")
async def pause(client: Client, what: What) -> Output:
    """Pause all pops or all pushes, at every broker of the store."""
    return await _set_paused(client, what, paused=True)


@client_command(app, "clear")
async def resume(client: Client, what: What) -> Output:
    """Resume all pops or all pushes."""
    return await _set_paused(client, what, paused=False)


async def _set_paused(client: Client, what: str, *, paused: bool) -> Output:
    await (client.pauses.pause_pops(paused) if what == "pops" else client.pauses.pause_pushes(paused))
    return Output({what: "paused" if paused else "resumed"}, _TEXTS[what, paused])
