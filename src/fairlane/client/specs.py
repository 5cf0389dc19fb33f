"""Specs: plan, apply and export."""

from __future__ import annotations

from typing import Any

import msgspec

from fairlane.client.resource import ClientResource
from fairlane.model.names import check_name, name_or_none
from fairlane.wire import specs as wire


class Specs(ClientResource):
    async def plan(self, spec: bytes) -> wire.SpecPlan:
        """Return what applying a document (the output of `fairlane spec compile`) would change. Changes nothing."""
        return await self._call(wire.SpecPlan, "POST", "spec", "plan", body=wire.SpecPlanBody(spec=msgspec.Raw(spec)))

    async def apply(
        self,
        spec: bytes,
        *,
        source: str = "",
        by: str = "",
        consent: bool = False,
        version: int | None = None,
    ) -> wire.SpecApplied:
        """Apply a document. Applying the same document again changes nothing.

        Raises ConsentNeeded, unless `consent` is given, if messages may be lost, refused or exposed. `version` is the
        version that a plan was made for. Raises Conflict if another version was applied since.
        """
        body = wire.SpecApplyBody(
            spec=msgspec.Raw(spec), source=source, applied_by=by, consent=consent, version=version
        )
        return await self._call(wire.SpecApplied, "POST", "spec", "apply", body=body)

    async def all(self) -> list[wire.SpecDetail]:
        """Return the specs in force, by app."""
        return (await self._call(wire.SpecList, "GET", "spec")).specs

    async def versions(
        self, app: str | None = None, *, before: int | None = None, limit: int = 100
    ) -> list[wire.SpecHead]:
        """Return the applied versions without their texts, newest first, only those below `before` if it is given."""
        query = {"limit": limit, "app": name_or_none("app", app), "before": before}
        return (await self._call(wire.SpecVersionList, "GET", "spec", "versions", query=query)).versions

    async def get(self, version: int) -> wire.SpecDetail:
        """Return one version with its text. Raises NotFound."""
        return await self._call(wire.SpecDetail, "GET", "spec", "versions", str(version))

    async def export(self, app: str) -> dict[str, Any]:
        """Return a document of the current queues of an app."""
        answer = await self._call(wire.SpecExported, "GET", "spec", "export", query={"app": check_name("app", app)})
        return msgspec.json.decode(answer.spec, type=dict[str, Any])
