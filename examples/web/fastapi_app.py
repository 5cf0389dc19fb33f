"""A FastAPI application that takes orders and handles them in its own process.

uvicorn fastapi_app:web
"""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI, HTTPException, Request
from pydantic import BaseModel, Field

from fairlane import App, Client
from fairlane.errors import Unavailable
from fairlane.worker import Worker

SERVER = os.environ.get("FAIRLANE_SERVER", "http://127.0.0.1:6632")
jobs = App("shop")


class Order(BaseModel):
    customer: str
    items: int = Field(ge=1)


class Price(BaseModel):
    total: int


@jobs.command("price", max_attempts=3)
async def price(order: Order) -> Price:
    return Price(total=42 * order.items)


@asynccontextmanager
async def lifespan(web: FastAPI) -> AsyncIterator[None]:
    async with Client(SERVER) as web.state.client, Worker(jobs, SERVER):
        yield


web = FastAPI(lifespan=lifespan)


@web.post("/orders", status_code=202)
async def take(order: Order, request: Request) -> dict[str, str]:
    """Accept an order. Orders of one customer are handled one after another."""
    client: Client = request.app.state.client
    pushed = await client.push("price", order, partition=order.customer)
    return {"id": pushed.transaction_id}


@web.get("/orders/{customer}/{id}")
async def show(customer: str, id: str, request: Request) -> Price:
    client: Client = request.app.state.client
    try:
        found: Price = await client.result("price", id, partition=customer, type=Price, timeout=20)
    except Unavailable as error:
        raise HTTPException(503, "the order is not handled yet") from error
    return found
