"""The handlers of the shop. `fairlane worker run examples.shop.app:app` runs them as well."""

from __future__ import annotations

import os

import msgspec

from fairlane import App, Context, Dead

PAYMENTS = os.environ.get("PAYMENTS", "http://127.0.0.1:8099")

app = App("shop")


class Order(msgspec.Struct):
    id: int
    customer: str
    cents: int


class Mail(msgspec.Struct):
    to: str
    text: str


class Price(msgspec.Struct):
    id: int
    cents: int


class PriceEvent(msgspec.Struct):
    """A change of one price, as the poller reports it."""

    event: str
    key: str
    record: Price | None = None


class Books:
    """The records of the shop. A real shop keeps them in a database."""

    def __init__(self) -> None:
        self.charges: dict[int, str] = {}
        self.mails: list[str] = []
        self.prices: dict[str, int] = {}
        self.reports = 0
        self.failed_attempts = 0


books = Books()


@app.provide
def the_books() -> Books:
    return books


@app.middleware
async def log_failures(ctx: Context, call):  # type: ignore[no-untyped-def]
    try:
        return await call()
    except Exception as error:
        books.failed_attempts += 1
        print(f"  attempt {ctx.attempt} of {ctx.message.queue}/{ctx.message.partition} failed: {error}")
        raise


@app.handler("orders", group="billing", concurrency=8)
async def bill(order: Order, books: Books, ctx: Context) -> None:
    """Charge the customer once and push the e-mail.

    Repeated attempts do not charge again, because the payment service knows the idempotency key. The e-mail is pushed
    in the transaction that acks the order, so each order gets exactly one.
    """
    reply = await ctx.http.post(f"{PAYMENTS}/charges", json={"order": order.id, "cents": order.cents})
    charge = reply.raise_for_status().json()["charge"]
    if order.id % 7 == 0 and ctx.attempt == 1:
        raise RuntimeError("the power went out after the charge")
    books.charges[order.id] = charge
    text = f"Order {order.id}: we charged you {order.cents / 100:.2f} ({charge})."
    ctx.push("mails", {"to": order.customer, "text": text}, partition=order.customer)


@app.handler("mails", concurrency=4)
async def send(mail: Mail, books: Books, ctx: Context) -> Dead | None:
    if "@" not in mail.to:
        return Dead(f"{mail.to!r} is not an address")
    if len(books.mails) % 6 == 5 and ctx.attempt == 1:
        raise ConnectionError("the mail server hung up")
    books.mails.append(mail.text)
    return None


@app.handler("prices", concurrency=4)
async def price(change: PriceEvent, books: Books) -> None:
    if change.event == "deleted":
        books.prices.pop(change.key, None)
    elif change.record is not None:
        books.prices[change.key] = change.record.cents
    print(f"  price of article {change.key} {change.event}")


@app.every("1s", name="report")
async def report(books: Books) -> None:
    books.reports += 1
    print(f"  report: {len(books.charges)} orders charged, {len(books.mails)} mails, {len(books.prices)} prices")
