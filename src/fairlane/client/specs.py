"""Specs: what a broker holds of them, and what it is to hold."""

from __future__ import annotations

from typing import Any

import msgspec

from fairlane.client.family import Family
from fairlane.client.transport import path_of
from fairlane.client.views import AppliedSpec, SpecPlan
from fairlane.client.wire import decode
from fairlane.model.names import check_name
from fairlane.wire.base import encode


class _Listed(msgspec.Struct):
    specs: list[AppliedSpec]


class _Versions(msgspec.Struct):
    versions: list[AppliedSpec]


class _Exported(msgspec.Struct):
    spec: dict[str, Any]


class Specs(Family):
    async def plan_spec(self, spec: bytes) -> SpecPlan:
        """What applying a document, as `fairlane spec compile` prints it, would change. Nothing is done."""
        body = encode({"spec": msgspec.Raw(spec)})
        return decode(await self._transport.ask("POST", path_of("spec", "plan"), body=body), SpecPlan)

    async def apply_spec(
        self,
        spec: bytes,
        *,
        source: str = "",
        applied_by: str = "",
        consent: bool = False,
        version: int | None = None,
    ) -> AppliedSpec:
        """Put a document in force; the same again changes nothing. ConsentNeeded, unless `consent` is given, if
        messages may be lost or refused by it. `version` is that of a plan: Conflict if another was applied since."""
        body = {
            "spec": msgspec.Raw(spec),
            "source": source,
            "appliedBy": applied_by,
            "consent": consent,
            "version": version,
        }
        return decode(await self._transport.ask("POST", path_of("spec", "apply"), body=encode(body)), AppliedSpec)

    async def specs(self) -> list[AppliedSpec]:
        """Those in force, by app."""
        return decode(await self._transport.ask("GET", path_of("spec")), _Listed).specs

    async def spec_versions(self, app: str | None = None, *, limit: int = 100) -> list[AppliedSpec]:
        """Everything that was applied, newest first, without texts."""
        query = {"limit": limit} | ({"app": check_name("app", app)} if app is not None else {})
        return decode(await self._transport.ask("GET", path_of("spec", "versions"), query=query), _Versions).versions

    async def export_spec(self, app: str) -> dict[str, Any]:
        """The document of an app as its queues are now."""
        query = {"app": check_name("app", app)}
        return decode(await self._transport.ask("GET", path_of("spec", "export"), query=query), _Exported).spec
