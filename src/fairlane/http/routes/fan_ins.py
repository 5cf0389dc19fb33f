"""Fan-ins: list, show, delete. Transactions create them."""

from __future__ import annotations

from fairlane.broker.broker import Broker
from fairlane.http.router import Routes
from fairlane.model.principal import Principal
from fairlane.wire.fan_ins import FanInDeleted, FanInDetail, FanInListQuery, FanInPartsQuery, FanIns

routes = Routes("fan-ins")
_ONE = "/api/v1/fan-ins/{id}"


@routes.get("/api/v1/fan-ins", needs="status", each=True, live=True)
async def list_fan_ins(broker: Broker, caller: Principal, query: FanInListQuery) -> FanIns:
    """List the newest fan-ins with their progress."""
    return FanIns(fan_ins=await broker.fan_ins.all(limit=query.limit, caller=caller))


@routes.get(_ONE, needs="status", each=True, live=True)
async def get(broker: Broker, caller: Principal, id: str, query: FanInPartsQuery) -> FanInDetail:
    """Show the progress of a fan-in, with its parts."""
    found = await broker.fan_ins.get(id, limit=query.limit, offset=query.offset)
    for queue in {found.queue, *(part.queue for part in found.parts)}:
        caller.check("status", queue)
    return found


@routes.delete(_ONE, needs="push", each=True)
async def delete(broker: Broker, caller: Principal, id: str) -> FanInDeleted:
    """Delete a fan-in, so that its callback is not pushed. Its messages are kept."""
    if not caller.allows_all("push"):
        caller.check("push", (await broker.fan_ins.get(id)).queue)
    return FanInDeleted(id=id, deleted=await broker.fan_ins.delete(id))
