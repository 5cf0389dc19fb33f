"""The compiled specs, those in force: what a broker asks when a message, a webhook or a command comes.

A memory like the catalogue, and renewed with it. It is what the last look at the store found, or what an earlier
process left in the journal, so that types and signatures are checked while the store is away.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol, TypeVar

import msgspec

from fairlane.broker.push_batch import PushRequest
from fairlane.broker.work import Spent, Work
from fairlane.errors import CommandFailed, ExpressionFailed, InvalidRequest, PayloadInvalid
from fairlane.hooks.hook import Hook, Secrets, check_command_secret
from fairlane.model.message import PushItem
from fairlane.model.names import DEFAULT_PARTITION
from fairlane.model.queue import QueueOptions
from fairlane.outbound.addresses import Allowed, check_url
from fairlane.runtime.rate import Allowance
from fairlane.spec import ir
from fairlane.spec.compiled_queue import CompiledQueue, decoded
from fairlane.store.contract.store import Store
from fairlane.wire.specs import SpecDetail

Step = TypeVar("Step")
Result = TypeVar("Result")

log = logging.getLogger(__name__)
_decode = msgspec.json.Decoder(ir.Spec).decode


class CompiledSpec:
    """A compiled spec. With `strict` InvalidRequest if a secret that it names is missing or too short, or a command
    calls where it may not; otherwise the webhook is there and cannot be used, and the calls fail."""

    def __init__(self, spec: ir.Spec, secrets: Secrets, allowed: Allowed, *, strict: bool) -> None:
        self.spec = spec
        self.queues = {name: CompiledQueue(spec, name) for name in spec.queues}
        self.hooks: dict[str, Hook | None] = {}
        for name in spec.webhooks:
            try:
                self.hooks[name] = Hook(spec, name, secrets)
            except InvalidRequest as error:
                if strict:
                    raise
                log.error(
                    "webhook %(name)s is not available and answers 503: %(error)s", {"name": name, "error": error}
                )
                self.hooks[name] = None
        if strict:
            for name, command in spec.commands.items():
                check_command_secret(name, command, secrets)
                _check_url(name, command, allowed)


class Runner(Protocol):
    """The runner of commands."""

    async def run(self, tenant: str, command: str, input: bytes, *, idempotency_key: str) -> bytes:
        """The result, as JSON; of a repeat with the same key the first one's."""
        ...


class CompiledSpecs:
    """The compiled specs of a tenant. By name: `queues`, `hooks` (None: its secret is missing here), `commands` and
    `pollers` of all its apps."""

    def __init__(
        self,
        store: Store,
        tenant: str,
        secrets: Secrets,
        allowed: Allowed,
        compiling: asyncio.Lock,
        work: Work,
        *,
        loaded: bool,
    ) -> None:
        self._store = store
        self._tenant = tenant
        self._secrets = secrets
        self._allowed = allowed
        self._compiling = compiling
        self.work = work
        """Of its expressions, which whoever has them evaluated asks first."""
        self._apps: dict[str, tuple[SpecDetail, CompiledSpec]] = {}
        self.queues: dict[str, CompiledQueue] = {}
        self.hooks: dict[str, Hook | None] = {}
        self.commands: dict[str, ir.CommandSpec] = {}
        self.pollers: dict[str, ir.PollerSpec] = {}
        self._doors: dict[str, CompiledQueue] = {}
        """Of the queues whose messages are looked at when they are pushed."""
        self.loaded = loaded
        self.idle = loaded
        """Whether it is known that no queue has a type or a key: then a push need not ask any further."""

    @property
    def versions(self) -> list[SpecDetail]:
        return [version for version, _ in self._apps.values()]

    def declaring(self, hook: str) -> ir.Spec:
        """The spec in force that declares a webhook."""
        return next(one.spec for _, one in self._apps.values() if hook in one.hooks)

    async def compile(self, spec: ir.Spec) -> CompiledSpec:
        """A spec that is about to be applied. InvalidRequest if a secret that it names is missing or too short, or a
        command calls where it may not."""
        return await self.alone(lambda spec: CompiledSpec(spec, self._secrets, self._allowed, strict=True), spec)

    async def alone(self, work: Callable[[ir.Spec], Result], spec: ir.Spec) -> Result:
        """Work that parses, beside the loop and one at a time: the parser is one for all."""
        async with self._compiling:
            return await asyncio.to_thread(work, spec)

    async def reload(self) -> None:
        """Look at the store. Whoever asks after a spec was applied finds it in force afterwards."""
        async with self._compiling:
            await self._load(await self._store.specs.in_force(self._tenant))

    async def load(self, versions: Sequence[SpecDetail]) -> None:
        """Put these in force."""
        async with self._compiling:
            await self._load(versions)

    async def _load(self, versions: Sequence[SpecDetail]) -> None:
        """What was compiled before is kept."""
        apps: dict[str, tuple[SpecDetail, CompiledSpec]] = {}
        for version in versions:
            known = self._apps.get(version.app)
            if known is None or known[0] != version:
                known = await asyncio.to_thread(self._compiled, version) or known
            if known is not None:
                apps[version.app] = known
        self._apps = apps
        specs = [compiled for _, compiled in apps.values()]
        self.queues = {name: one for compiled in specs for name, one in compiled.queues.items()}
        self.hooks = {name: hook for compiled in specs for name, hook in compiled.hooks.items()}
        self.commands = {name: one for compiled in specs for name, one in compiled.spec.commands.items()}
        self.pollers = {name: one for compiled in specs for name, one in compiled.spec.pollers.items()}
        self._doors = {name: queue for name, queue in self.queues.items() if queue.looks}
        self.loaded = True
        self.idle = not self._doors

    def _compiled(self, version: SpecDetail) -> tuple[SpecDetail, CompiledSpec] | None:
        try:
            return version, CompiledSpec(_decode(version.raw), self._secrets, self._allowed, strict=False)
        except (msgspec.MsgspecError, InvalidRequest) as error:
            log.error(
                "cannot compile version %(version)d of the spec of app %(app)s: %(error)s",
                {"version": version.version, "app": version.app, "error": error},
            )
            return None

    def admit(self, request: PushRequest) -> PushRequest:
        """The request with the partitions that keys name. PayloadInvalid or ExpressionFailed, and nothing is stored,
        if a message does not fit; OverQuota if the tenant's expressions have done as much as they may."""
        if len(request.items) == 1:  # as of every webhook
            [item] = request.items
            compiled = self._doors.get(item.queue)
            if compiled is None:
                return request
            items = self.admit_steps([item]) if self.work.allowances else [_admitted(item, compiled)]
            return PushRequest(request.tenant, items, request.special, request.traced)
        request.queues = {item.queue for item in request.items}
        if self._doors.keys().isdisjoint(request.queues):
            return request
        return msgspec.structs.replace(request, items=self.admit_steps(request.items))

    def admit_steps(self, steps: Sequence[Step]) -> Sequence[Step]:
        """The same of pushes among the steps of a transaction."""
        if not self._doors:
            return steps
        if not self.work.allowances or not any(map(self._evaluates, steps)):
            return self._admit_steps(steps, None)
        with self.work.request() as spent:
            return self._admit_steps(steps, spent)

    def _evaluates(self, step: object) -> bool:
        """Whether an expression names the partition of what is pushed."""
        if not isinstance(step, PushItem) or (compiled := self._doors.get(step.queue)) is None:
            return False
        return _is_keyed(step, compiled)

    def _admit_steps(self, steps: Sequence[Step], spent: Spent | None) -> Sequence[Step]:
        admitted: list[Any] = list(steps)
        for index, step in enumerate(steps):
            if not isinstance(step, PushItem) or (compiled := self._doors.get(step.queue)) is None:
                continue
            where = f"items[{index}]: " if len(steps) > 1 else ""
            try:
                admitted[index] = _admitted(step, compiled, spent)
            except PayloadInvalid as error:
                raise PayloadInvalid(f"{where}{error}", path=error.path) from None
            except ExpressionFailed as error:
                raise ExpressionFailed(f"{where}{error}") from None
        return admitted


class AllSpecs:
    """The compiled specs of all tenants."""

    def __init__(self, store: Store, secrets: Secrets, allowed: Allowed, allowances: Mapping[str, Allowance]) -> None:
        self._store = store
        self._allowances = allowances
        self._secrets = secrets
        self._allowed = allowed
        self._compiling = asyncio.Lock()
        """One for all tenants: the parser is one for all."""
        self._by_tenant: dict[str, CompiledSpecs] = {}
        self.loaded = False
        self.runner: Runner | None = None
        """Carries out commands at once; None where nobody does."""

    def of(self, tenant: str) -> CompiledSpecs:
        found = self._by_tenant.get(tenant)
        if found is None:
            found = self._by_tenant[tenant] = CompiledSpecs(
                self._store,
                tenant,
                self._secrets,
                self._allowed,
                self._compiling,
                Work(tenant, self._allowances),
                loaded=self.loaded,
            )
        return found

    def knows(self, tenant: str) -> bool:
        """Whether the tenant is in memory, as every one is that has a spec."""
        return tenant in self._by_tenant

    def items(self) -> Iterable[tuple[str, CompiledSpecs]]:
        """Those that are in memory, by tenant: every tenant that has a spec is among them."""
        return list(self._by_tenant.items())

    def declared(self, tenant: str, queue: str) -> QueueOptions | None:
        """Return the options that a spec in force declares for the queue, or None if none declares it."""
        known = self._by_tenant.get(tenant)
        found = known.queues.get(queue) if known else None
        return found.options if found else None

    def forget(self, tenant: str) -> bool:
        """Let go of a tenant without any; False if it has some."""
        known = self._by_tenant.get(tenant)
        if known is None or not known.versions:
            self._by_tenant.pop(tenant, None)
            return True
        return False

    async def reload(self) -> None:
        """Look at the store, and read the specs of tenants that have others than were read."""
        heads = await self._store.specs.heads()
        for tenant in {*heads, *self._by_tenant}:
            known = self.of(tenant)
            if not known.loaded or {one.version for one in known.versions} != heads.get(tenant, set()):
                await known.reload()
        self.loaded = True

    async def load(self, versions: Mapping[str, Sequence[SpecDetail]]) -> None:
        """Put these in force."""
        for tenant, some in versions.items():
            await self.of(tenant).load(some)

    def versions(self) -> dict[str, list[SpecDetail]]:
        return {tenant: one.versions for tenant, one in self._by_tenant.items() if one.versions}


def _check_url(name: str, command: ir.CommandSpec, allowed: Allowed) -> None:
    """InvalidRequest for a URL that this broker would not call. What a name resolves to is judged at each call."""
    if isinstance(command.run, ir.HttpRun):
        try:
            check_url(command.run.url, allowed)
        except CommandFailed as error:
            raise InvalidRequest(f"command {name!r:.80}: {error}") from None


def _admitted(item: PushItem, compiled: CompiledQueue, spent: Spent | None = None) -> PushItem:
    payload = bytes(item.payload)
    compiled.check(payload)
    if not _is_keyed(item, compiled):
        return item
    if spent is None:
        partition = compiled.partition(decoded(payload))
    else:
        with spent.on(len(payload)):
            partition = compiled.partition(decoded(payload))
    return msgspec.structs.replace(item, partition=partition)


def _is_keyed(item: PushItem, compiled: CompiledQueue) -> bool:
    # Who names the partition of those who name none is not told from who names none.
    return compiled.keyed and item.partition == DEFAULT_PARTITION
