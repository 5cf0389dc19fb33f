"""A worker with a handler that does nothing, beside PgQueuer and Procrastinate on the same PostgreSQL."""

from __future__ import annotations

from bench.figures import Findings, Run, Target
from bench.suite import STORES, Section, Suite, ours
from bench.workers import CONCURRENCIES, PEERS, RIVALS, Peer, pushed, run_peer, throughput

WORKLOAD = "no-op jobs, one worker"
ORDERINGS = {"per_key": "ordered, 1,000 partitions", "unordered": "unordered"}


async def run(suite: Suite) -> Findings:
    """The first round tries every setting, the others keep each system's best."""
    found = Findings()
    best: dict[str, int] = {}
    peers = RIVALS if PEERS.exists() else ()
    if not peers:
        found.notes.append("PgQueuer and Procrastinate ARE LEFT OUT: `make bench-peers` installs them.")
    versions = {}
    for number in range(suite.scale.rounds):
        for kind in STORES:
            for ordering in ORDERINGS:
                suite.say(f"jobs, round {number + 1}: {kind}, {ordering}")
                name = f"{ours(kind)}, {ORDERINGS[ordering]}"
                tries = {
                    setting: await worker(suite, kind, ordering, setting)
                    for setting in ([best[name]] if name in best else CONCURRENCIES)
                }
                keep(found, best, name, tries)
        for peer in peers:
            suite.say(f"jobs, round {number + 1}: {peer.name}")
            tries = {}
            for setting in [best[peer.name]] if peer.name in best else peer.settings:
                versions[peer.name], tries[setting] = await rival(suite, peer, setting)
            keep(found, best, peer.name, tries)
    for peer in RIVALS:
        for kind in STORES:
            for label in ORDERINGS.values():
                name = f"{ours(kind)}, {label}"
                value = found.ratio((WORKLOAD, name), (WORKLOAD, peer.name))
                basis = f"jobs/s, by those of {peer.name}"
                found.targets.append(Target("worker, no-op handler", name, value, peer.target, "x", basis=basis))
    settings = [f"{peer.name} {versions[peer.name]} with {peer.setting} {best[peer.name]}" for peer in peers]
    settings += [f"{name} with concurrency {setting}" for name, setting in best.items() if name.startswith("Fairlane")]
    found.notes.append(f"Best settings: {'; '.join(settings)}.")
    return found


def keep(found: Findings, best: dict[str, int], name: str, tries: dict[int, Run]) -> None:
    best[name] = max(tries, key=lambda setting: tries[setting].rate or 0)
    found.add(WORKLOAD, name, tries[best[name]], unit="jobs")


async def worker(suite: Suite, kind: str, ordering: str, concurrency: int) -> Run:
    jobs = suite.scale.jobs
    async with suite.store(kind) as url, suite.broker(kind, url) as running:
        await pushed(running.url, "bench", ordering, jobs)
        meter = suite.meter(running)
        await meter.begin()
        rate, cpu = await throughput(running.url, "bench", jobs, concurrency)
        await meter.end()
    return meter.cost(jobs)._replace(rate=rate, client_us=cpu)


async def rival(suite: Suite, peer: Peer, setting: int) -> tuple[str, Run]:
    async with suite.store("postgres") as url:
        rate, cpu, version = await run_peer(peer, url, suite.scale.jobs, setting)
    return version, Run(rate=rate, client_us=cpu)


JOBS = Section(
    "jobs",
    "Workers",
    "One worker process with a handler that does nothing, jobs of 98 bytes that wait when it starts. PgQueuer and "
    "Procrastinate work on the same PostgreSQL; each system runs with the best of its settings, found in the first "
    "round. Client is the worker.",
    run,
)
