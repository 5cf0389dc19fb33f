"""A part of a broker: the verbs of one noun, as one tenant sees it, over the machinery that all tenants share."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fairlane.broker.parts import Parts


class Part:
    def __init__(self, broker: Parts) -> None:
        self._broker = broker
        self._store = broker.store
        self._tenant = broker.tenant
        self._catalogue = broker.catalogue
