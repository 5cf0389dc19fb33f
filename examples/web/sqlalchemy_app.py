"""Orders and their messages in one transaction, and the effect of a handler with its ack in another: SQLAlchemy.

    python sqlalchemy_app.py

The broker uses the PostgreSQL database of the application: `fairlane serve --store postgresql://...`.
"""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from sqlalchemy import func, select
from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from fairlane import App, Client, Context
from fairlane.sql import enqueue
from fairlane.worker import Worker

SERVER = os.environ.get("FAIRLANE_SERVER", "http://127.0.0.1:6632")
DATABASE = os.environ.get("DATABASE_URL", "postgresql://localhost/shop")
Sessions = async_sessionmaker[AsyncSession]
jobs = App("shop")


class Base(DeclarativeBase): ...


class Order(Base):
    __tablename__ = "orders"
    id: Mapped[int] = mapped_column(primary_key=True)
    items: Mapped[int]


class Receipt(Base):
    __tablename__ = "receipts"
    id: Mapped[int] = mapped_column(primary_key=True)
    order: Mapped[int]
    total: Mapped[int]


@jobs.provide
async def database() -> AsyncIterator[Sessions]:
    """Open a pool. Handlers have an event loop of their own, and a pool belongs to one loop, so `main` has another."""
    engine = create_async_engine(DATABASE.replace("postgresql://", "postgresql+asyncpg://"))
    yield async_sessionmaker(engine, expire_on_commit=False)
    await engine.dispose()


@jobs.handler("price", max_attempts=3)
async def price(id: int, ctx: Context, sessions: Sessions) -> None:
    """Write one receipt for an order: it is committed with the end of the message, or not at all."""
    async with sessions.begin() as session:
        order = await session.get_one(Order, id)
        session.add(Receipt(order=id, total=42 * order.items))
        await session.flush()
        await ctx.complete(session)


async def take(session: AsyncSession, items: int) -> int:
    """Store an order and enqueue its message in the caller's transaction."""
    order = Order(items=items)
    session.add(order)
    await session.flush()
    await enqueue(session, "price", order.id, transaction_id=f"price {order.id}")
    return order.id


async def main() -> None:
    async with asynccontextmanager(database)() as sessions:
        async with sessions.begin() as session:
            await (await session.connection()).run_sync(Base.metadata.create_all)
        async with Worker(jobs, SERVER):
            async with sessions.begin() as session:
                id = await take(session, 3)
            async with sessions() as session:
                await take(session, 1000)
                await session.rollback()  # neither order nor message is stored
            async with sessions() as session:
                while not (total := await session.scalar(select(Receipt.total).where(Receipt.order == id))):
                    await asyncio.sleep(0.05)
                print(f"order {id} costs {total}; {await session.scalar(select(func.count(Receipt.id)))} receipt")
    async with Client(SERVER) as client:
        print(f"its message is {(await client.results.get('price', f'price {id}')).status}")


if __name__ == "__main__":
    asyncio.run(main())
