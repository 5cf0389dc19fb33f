"""A resource of a broker: the verbs of one noun, for one tenant."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fairlane.broker.engine import TenantScope


class Resource:
    def __init__(self, scope: TenantScope) -> None:
        self._scope = scope
        self._engine = scope.engine
        self._store = scope.engine.store
        self._catalogue = scope.engine.catalogue
        self._tenant = scope.tenant
