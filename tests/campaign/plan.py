"""The experiments of a campaign: what each breaks, and its command."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import NamedTuple

VERIFY = (sys.executable, "-P", "-c", "from fairlane.cli.main import main; main()", "verify", "--json")
PYTEST = (sys.executable, "-m", "pytest", "-q", "-p", "no:xdist", "-p", "no:cacheprovider")


class Experiment(NamedTuple):
    """A group of runs that break one kind of thing."""

    name: str
    what: str
    stores: Sequence[str] = ("sqlite", "postgres", "cells")
    faults: str = ""
    """Faults of `fairlane verify`. Empty for a command of its own."""
    minutes: float = 2.0
    pytest: Sequence[str] = ()
    script: Sequence[str] = ()
    """A module beside this one with its arguments. It prints its figures as JSON."""


SERVERS = ("postgres", "cells")
EXPERIMENTS = (
    Experiment("commit order", "transactions that began first commit last", SERVERS, "late_commits,lose_commits"),
    Experiment(
        "kills",
        "brokers die at any moment, and at any write, sync and answer",
        faults="kill_broker,kill_all_brokers,stop_broker,kill_broker_at_call,kill_clients",
    ),
    Experiment("liveness", "the time until work goes on after a kill", script=("liveness",)),
    Experiment(
        "many power cuts",
        "the power is cut at any write or sync",
        ("sqlite",),
        script=("power_cuts", "--cuts", "1000"),
    ),
    Experiment("power cuts", "the power of a broker with its file or journal", faults="cut_power_of_broker"),
    Experiment(
        "power cuts of PostgreSQL",
        "the power of a server, and of a journal during an outage",
        SERVERS,
        "cut_power_of_server,cut_power_while_buffering",
    ),
    Experiment("lost answers", "requests are applied and their answers are lost", faults="drop_answers,lose_commits"),
    Experiment(
        "PostgreSQL dies",
        "immediate stops, kills, terminated sessions, cancelled statements",
        SERVERS,
        "crash_server,kill_server,terminate_sessions,cancel_statements,kill_server_at_call",
    ),
    Experiment("zombies", "frozen consumers, brokers and servers", faults="freeze_clients,freeze_broker,freeze_server"),
    Experiment(
        "failing disks",
        "EIO at any write or sync",
        faults="fail_disk_of_broker,fail_disk_of_server",
    ),
    Experiment("full disks", "no write makes a file larger", faults="fill_disk_of_broker,fill_disk_of_server"),
    Experiment("clocks", "clocks are stepped by up to an hour", faults="step_clock_of_broker,step_clock_of_server"),
    Experiment("network", "resets, delays, silence", faults="reset_connections,slow_network,black_hole,cut_store"),
    Experiment("all", "every fault, in a random order", minutes=5.0),
    Experiment("moves", "queues move between cells, and the moves are killed", ("cells",), "move_queue,kill_broker"),
    Experiment(
        "failover",
        "a primary dies, and the better one of two synchronous standbys is promoted",
        SERVERS,
        "fail_over",
    ),
    Experiment(
        "high availability",
        "standbys are promoted by hand and by Patroni",
        ("postgres",),
        pytest=("tests/faults/test_failover.py", "tests/faults/test_replication.py", "tests/availability"),
    ),
    Experiment(
        "crash points",
        "a broker dies at each point at which it has unfinished work",
        ("postgres",),
        pytest=("tests/faults/test_crash_points.py",),
    ),
    Experiment("upgrades", "brokers of two releases, and interrupted migrations", pytest=("tests/upgrade",)),
    Experiment("flipped bits", "damaged files and segments", ("sqlite",), pytest=("tests/faults/test_sqlite_file.py",)),
    Experiment("overload", "too many requests, slow clients", ("sqlite",), pytest=("tests/faults/test_overload.py",)),
)
"""All experiments, in the order of their value."""


class Run(NamedTuple):
    """One run of an experiment on one store."""

    experiment: Experiment
    store: str
    seed: int

    @property
    def name(self) -> str:
        return f"{self.experiment.name.replace(' ', '-').replace(',', '')}-{self.store}-{self.seed}"

    def command(self, directory: str) -> list[str]:
        """Return the command of the run, which may write to a directory."""
        if self.experiment.pytest:
            return [*PYTEST, *self.experiment.pytest]
        if self.experiment.script:
            module, *arguments = self.experiment.script
            words = ["--store", self.store, "--seed", str(self.seed), *arguments]
            return [sys.executable, "-m", f"tests.campaign.{module}", *words]
        store = f"sqlite:///{directory}/queue.db" if self.store == "sqlite" else self.store
        words = [*VERIFY, "--store", store, "--minutes", f"{self.experiment.minutes:g}", "--seed", str(self.seed)]
        words += ["--report", f"{directory}/report.html"]
        return [*words, "--faults", self.experiment.faults] if self.experiment.faults else words


def runs(first_seed: int) -> Sequence[Run]:
    """Return every run of one round. Each round has other seeds."""
    found = []
    for experiment in EXPERIMENTS:
        stores = experiment.stores[:1] if experiment.pytest else experiment.stores
        found += [Run(experiment, store, first_seed + number) for number, store in enumerate(stores)]
    return found
