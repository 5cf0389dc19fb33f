"""The system: this broker, its store, and the settings in force."""

from __future__ import annotations

import platform
from typing import TYPE_CHECKING

from fairlane.broker.broker import Broker
from fairlane.http.router import Routes
from fairlane.runtime.process import resident_bytes
from fairlane.wire.system import BrokerProcess, SystemReport

if TYPE_CHECKING:
    from fairlane.http.app import App

routes = Routes("status")
_MEBIBYTE = 2**20


@routes.get("/api/v1/system", needs="status", live=True, operator=True)
async def system(app: App, broker: Broker) -> SystemReport:
    """This broker, its store, and the settings in force."""
    connected = await broker.status.healthy()
    report = await broker.status.store_report() if connected else {"kind": broker.status.store_kind}
    return SystemReport(
        broker=BrokerProcess(
            version=app.version,
            hostname=app.hostname,
            pid=app.worker_id,
            python=platform.python_version(),
            started_at=broker.status.started_at,
            memory_bytes=resident_bytes() // _MEBIBYTE * _MEBIBYTE,  # so that a page that watches is not told each byte
            processes=1 if app.siblings is None else app.siblings.count,
        ),
        store={name: value for name, value in report.items() if name != "timestamp"} | {"answers": connected},
        journal=broker.status.journal(),
        settings=app.settings,
    )
