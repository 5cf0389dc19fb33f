"""The compiled specs in force, for messages, webhooks and commands.

They are a cache like the catalogue, and refreshed with it. It holds the last state of the store, or the state that an
earlier process saved in the journal, so that types and signatures are checked while the store is unavailable.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol, TypeVar

import msgspec

from fairlane.broker.expression_quota import ExpressionQuota, Usage
from fairlane.broker.push_batch import PushRequest
from fairlane.errors import CommandFailed, ExpressionFailed, InvalidRequest, PayloadInvalid
from fairlane.model.message import PushItem
from fairlane.model.names import DEFAULT_PARTITION
from fairlane.model.queue import QueueOptions
from fairlane.outbound.addresses import Allowed, check_url
from fairlane.runtime.rate import WorkLimit
from fairlane.spec import ir
from fairlane.spec.compiled_queue import CompiledQueue, decoded
from fairlane.store.contract.store import Store
from fairlane.webhooks.webhook import Secrets, Webhook, check_command_secret
from fairlane.wire.specs import SpecDetail

Step = TypeVar("Step")
Result = TypeVar("Result")

log = logging.getLogger(__name__)
_decode = msgspec.json.Decoder(ir.Spec).decode


class CompiledSpec:
    """A compiled spec.

    With `strict`, raises InvalidRequest if a secret is missing or too short, or a command calls a forbidden URL.
    Otherwise the webhook is unavailable, and the calls fail.
    """

    def __init__(self, spec: ir.Spec, secrets: Secrets, allowed: Allowed, *, strict: bool) -> None:
        self.spec = spec
        self.queues = {name: CompiledQueue(spec, name) for name in spec.queues}
        self.webhooks: dict[str, Webhook | None] = {}
        for name in spec.webhooks:
            try:
                self.webhooks[name] = Webhook(spec, name, secrets)
            except InvalidRequest as error:
                if strict:
                    raise
                log.error(
                    "webhook %(name)s is not available and answers 503: %(error)s", {"name": name, "error": error}
                )
                self.webhooks[name] = None
        if strict:
            for name, command in spec.commands.items():
                check_command_secret(name, command, secrets)
                _check_url(name, command, allowed)


class Runner(Protocol):
    """A runner of commands."""

    async def run(self, tenant: str, command: str, input: bytes, *, idempotency_key: str) -> bytes:
        """Run a command and return its result as JSON. A repeat with the same key returns the first result."""
        ...


class CompiledSpecs:
    """The compiled specs of a tenant, by name: `queues`, `webhooks`, `commands` and `pollers` of all its apps.

    A webhook is None if its secret is missing here.
    """

    def __init__(
        self,
        store: Store,
        tenant: str,
        secrets: Secrets,
        allowed: Allowed,
        compiling: asyncio.Lock,
        expression_quota: ExpressionQuota,
        *,
        loaded: bool,
    ) -> None:
        self._store = store
        self._tenant = tenant
        self._secrets = secrets
        self._allowed = allowed
        self._compiling = compiling
        self.expression_quota = expression_quota
        """Quota of its expressions, checked before each evaluation."""
        self._apps: dict[str, tuple[SpecDetail, CompiledSpec]] = {}
        self.queues: dict[str, CompiledQueue] = {}
        self.webhooks: dict[str, Webhook | None] = {}
        self.commands: dict[str, ir.CommandSpec] = {}
        self.pollers: dict[str, ir.PollerSpec] = {}
        self._doors: dict[str, CompiledQueue] = {}
        """Queues whose messages are checked when they are pushed."""
        self.loaded = loaded
        self.idle = loaded
        """True if no queue is known to have a type or a key, so that pushes skip the check."""

    @property
    def versions(self) -> list[SpecDetail]:
        return [version for version, _ in self._apps.values()]

    def declaring(self, webhook: str) -> ir.Spec:
        """Return the spec in force that declares a webhook."""
        return next(one.spec for _, one in self._apps.values() if webhook in one.webhooks)

    async def compile(self, spec: ir.Spec) -> CompiledSpec:
        """Compile a spec that is about to be applied.

        Raises InvalidRequest if a secret is missing or too short, or a command calls a forbidden URL.
        """
        return await self.alone(lambda spec: CompiledSpec(spec, self._secrets, self._allowed, strict=True), spec)

    async def alone(self, work: Callable[[ir.Spec], Result], spec: ir.Spec) -> Result:
        """Run `work`, which parses, in a thread and one at a time, because all share one parser."""
        async with self._compiling:
            return await asyncio.to_thread(work, spec)

    async def reload(self) -> None:
        """Reload from the store. After this, an applied spec is in force here."""
        async with self._compiling:
            await self._load(await self._store.specs.in_force(self._tenant))

    async def load(self, versions: Sequence[SpecDetail]) -> None:
        """Put these versions in force."""
        async with self._compiling:
            await self._load(versions)

    async def _load(self, versions: Sequence[SpecDetail]) -> None:
        """Put these versions in force, and reuse compiled ones."""
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
        self.webhooks = {name: webhook for compiled in specs for name, webhook in compiled.webhooks.items()}
        self.commands = {name: one for compiled in specs for name, one in compiled.spec.commands.items()}
        self.pollers = {name: one for compiled in specs for name, one in compiled.spec.pollers.items()}
        self._doors = {name: queue for name, queue in self.queues.items() if queue.inspects}
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
        """Return the request with the partitions that keys name.

        Raises PayloadInvalid or ExpressionFailed if a message does not fit, and OverQuota if the tenant's expressions
        exceed their quota.
        """
        if len(request.items) == 1:  # the common case of webhooks
            [item] = request.items
            compiled = self._doors.get(item.queue)
            if compiled is None:
                return request
            items = self.admit_steps([item]) if self.expression_quota.work_limits else [_admitted(item, compiled)]
            return PushRequest(request.tenant, items, request.special, request.traced)
        request.queues = {item.queue for item in request.items}
        if self._doors.keys().isdisjoint(request.queues):
            return request
        return msgspec.structs.replace(request, items=self.admit_steps(request.items))

    def admit_steps(self, steps: Sequence[Step]) -> Sequence[Step]:
        """Return the steps of a transaction, with the partitions that keys name."""
        if not self._doors:
            return steps
        if not self.expression_quota.work_limits or not any(map(self._evaluates, steps)):
            return self._admit_steps(steps, None)
        with self.expression_quota.request() as usage:
            return self._admit_steps(steps, usage)

    def _evaluates(self, step: object) -> bool:
        """Return True if an expression names the partition of the pushed message."""
        if not isinstance(step, PushItem) or (compiled := self._doors.get(step.queue)) is None:
            return False
        return _is_keyed(step, compiled)

    def _admit_steps(self, steps: Sequence[Step], usage: Usage | None) -> Sequence[Step]:
        admitted: list[Any] = list(steps)
        for index, step in enumerate(steps):
            if not isinstance(step, PushItem) or (compiled := self._doors.get(step.queue)) is None:
                continue
            where = f"items[{index}]: " if len(steps) > 1 else ""
            try:
                admitted[index] = _admitted(step, compiled, usage)
            except PayloadInvalid as error:
                raise PayloadInvalid(f"{where}{error}", path=error.path) from None
            except ExpressionFailed as error:
                raise ExpressionFailed(f"{where}{error}") from None
        return admitted


class AllSpecs:
    """The compiled specs of all tenants."""

    def __init__(self, store: Store, secrets: Secrets, allowed: Allowed, work_limits: Mapping[str, WorkLimit]) -> None:
        self._store = store
        self._allowances = work_limits
        self._secrets = secrets
        self._allowed = allowed
        self._compiling = asyncio.Lock()
        """Lock for all tenants, because they share one parser."""
        self._by_tenant: dict[str, CompiledSpecs] = {}
        self.loaded = False

    def of(self, tenant: str) -> CompiledSpecs:
        found = self._by_tenant.get(tenant)
        if found is None:
            found = self._by_tenant[tenant] = CompiledSpecs(
                self._store,
                tenant,
                self._secrets,
                self._allowed,
                self._compiling,
                ExpressionQuota(tenant, self._allowances),
                loaded=self.loaded,
            )
        return found

    def knows(self, tenant: str) -> bool:
        """Return True if the tenant is in memory. Every tenant with a spec is."""
        return tenant in self._by_tenant

    def items(self) -> Iterable[tuple[str, CompiledSpecs]]:
        """Yield the compiled specs in memory by tenant. Every tenant with a spec is included."""
        return list(self._by_tenant.items())

    def declared(self, tenant: str, queue: str) -> QueueOptions | None:
        """Return the options that a spec in force declares for the queue, or None if none declares it."""
        known = self._by_tenant.get(tenant)
        found = known.queues.get(queue) if known else None
        return found.options if found else None

    def forget(self, tenant: str) -> bool:
        """Remove a tenant without specs. Returns False if it has some."""
        known = self._by_tenant.get(tenant)
        if known is None or not known.versions:
            self._by_tenant.pop(tenant, None)
            return True
        return False

    async def reload(self) -> None:
        """Reload changed specs of all tenants from the store."""
        heads = await self._store.specs.heads()
        for tenant in {*heads, *self._by_tenant}:
            known = self.of(tenant)
            if not known.loaded or {one.version for one in known.versions} != heads.get(tenant, set()):
                await known.reload()
        self.loaded = True

    async def load(self, versions: Mapping[str, Sequence[SpecDetail]]) -> None:
        """Put these versions in force."""
        for tenant, some in versions.items():
            await self.of(tenant).load(some)

    def versions(self) -> dict[str, list[SpecDetail]]:
        return {tenant: one.versions for tenant, one in self._by_tenant.items() if one.versions}


def _check_url(name: str, command: ir.CommandSpec, allowed: Allowed) -> None:
    """Raise InvalidRequest for a URL that this broker would not call. Resolved addresses are checked at each call."""
    if isinstance(command.run, ir.HttpRun):
        try:
            check_url(command.run.url, allowed)
        except CommandFailed as error:
            raise InvalidRequest(f"command {name!r:.80}: {error}") from None


def _admitted(item: PushItem, compiled: CompiledQueue, usage: Usage | None = None) -> PushItem:
    payload = bytes(item.payload)
    compiled.check(payload)
    if not _is_keyed(item, compiled):
        return item
    if usage is None:
        partition = compiled.partition(decoded(payload))
    else:
        with usage.on(len(payload)):
            partition = compiled.partition(decoded(payload))
    return msgspec.structs.replace(item, partition=partition)


def _is_keyed(item: PushItem, compiled: CompiledQueue) -> bool:
    # A missing partition and an explicit default partition look the same.
    return compiled.keyed and item.partition == DEFAULT_PARTITION
