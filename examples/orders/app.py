"""An order service: FastAPI, SQLAlchemy and pydantic on one PostgreSQL database, which the broker uses as well."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI, HTTPException
from pydantic import BaseModel, Field
from sqlalchemy import func, select
from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from fairlane import App, Client, Context, FanInEnd
from fairlane.sql import enqueue
from fairlane.worker import Worker

SERVER = os.environ.get("FAIRLANE_SERVER", "http://127.0.0.1:6632")
DATABASE = os.environ.get("DATABASE_URL", "postgresql://localhost/orders")
STOCK = 100
Sessions = async_sessionmaker[AsyncSession]
client = Client(SERVER)
jobs = App("orders")


class Base(DeclarativeBase): ...


class Order(Base):
    __tablename__ = "orders"
    id: Mapped[int] = mapped_column(primary_key=True)
    customer: Mapped[str]
    items: Mapped[int]


class Receipt(Base):
    __tablename__ = "receipts"
    order: Mapped[int] = mapped_column(primary_key=True)
    total: Mapped[int]


class NewOrder(BaseModel):
    customer: str
    items: int = Field(ge=1)


class ReceiptJob(BaseModel):
    order: int
    items: int


@asynccontextmanager
async def database() -> AsyncIterator[Sessions]:
    """Open a pool of connections, which belongs to the running event loop."""
    engine = create_async_engine(DATABASE.replace("postgresql://", "postgresql+asyncpg://"))
    async with engine.begin() as connection:
        await connection.run_sync(Base.metadata.create_all)
    yield async_sessionmaker(engine, expire_on_commit=False)
    await engine.dispose()


# The jobs. They run on an event loop of their own, so they have their own pool.


@jobs.provide
async def sessions_of_jobs() -> AsyncIterator[Sessions]:
    async with database() as sessions:
        yield sessions


@jobs.handler("receipts", max_attempts=5)
async def write_receipt(job: ReceiptJob, ctx: Context, sessions: Sessions) -> None:
    """Write a receipt in the transaction that finishes the message, so that there is exactly one."""
    async with sessions.begin() as session:
        session.add(Receipt(order=job.order, total=42 * job.items))
        await session.flush()
        await ctx.complete(session)


@jobs.handler("parcels", timeout=60)
async def pack(job: ReceiptJob, ctx: Context) -> None:
    """Pack the items one by one. A cancellation ends it between two of them."""
    for _ in range(job.items):
        await asyncio.sleep(0.1)


labels: list[float] = []


@jobs.handler("labels", concurrency=20, options={"ordering": "unordered", "rate": "5/1s"})
async def print_label(order: int) -> None:
    """Call the API of the carrier, which allows five calls per second to all workers together."""
    labels.append(time.monotonic())


@jobs.handler("invoices", max_attempts=1)
async def send_invoice(invoice: dict[str, str]) -> None:
    """Send an invoice to its address. One without an address becomes a dead letter, with a traceback."""
    print(f"invoice to {invoice['address']}")


@jobs.command("sales")
async def sum_sales(customer: str, sessions: Sessions) -> int:
    """Sum the receipts of a customer, as one part of a report."""
    totals = select(func.sum(Receipt.total)).join(Order, Order.id == Receipt.order)
    async with sessions() as session:
        return await session.scalar(totals.where(Order.customer == customer)) or 0


@jobs.command("reports")
async def finish_report(end: FanInEnd) -> dict[str, int]:
    """Put the results of all parts together, after the last of them."""
    return dict(zip(end.data, end.results, strict=True))


# The web application, which runs the jobs, too.


@asynccontextmanager
async def lifespan(web: FastAPI) -> AsyncIterator[None]:
    async with database() as web.state.sessions, client:
        for queue, options in jobs.declared().items():
            await client.queues.configure(queue, **options)
        async with Worker(jobs, SERVER):
            yield


web = FastAPI(lifespan=lifespan)


@web.post("/orders", status_code=201)
async def take(new: NewOrder) -> int:
    """Store an order and enqueue its receipt in one transaction: both or neither."""
    async with web.state.sessions.begin() as session:
        order = Order(customer=new.customer, items=new.items)
        session.add(order)
        await session.flush()
        job = ReceiptJob(order=order.id, items=order.items)
        await enqueue(session, "receipts", job, transaction_id=f"receipt {order.id}")
        if order.items > STOCK:
            raise HTTPException(409, f"there are only {STOCK}")  # nothing is stored, and nothing enqueued
    return order.id


@web.delete("/orders/{id}/parcel")
async def stop_packing(id: int) -> str:
    """Cancel the packing of an order, also while a worker is at it. Returns its status before."""
    return (await client.cancel("parcels", f"parcel {id}")).before


@web.post("/reports")
async def report(customers: list[str]) -> dict[str, int]:
    """Ask for the sales of each customer in parallel, and wait for the report on all of them."""
    id = await client.fan_in([("sales", customer) for customer in customers], then=("reports", customers))
    found: dict[str, int] = await client.result("reports", id, timeout=30)
    return found
