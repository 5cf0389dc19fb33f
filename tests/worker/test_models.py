"""Models of pydantic as payloads and results, from the push to the handler."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Literal

import msgspec
import pytest
from pydantic import BaseModel, ConfigDict, Field, RootModel, field_validator

from fairlane import App, Broker, Client, Context, Done
from fairlane.errors import InvalidRequest
from fairlane.model.decoding import decoder_of
from fairlane.testing import AppTest
from fairlane.worker import Worker


class Item(BaseModel):
    model_config = ConfigDict(strict=True)

    sku: str
    count: int = Field(ge=1)
    at: datetime = datetime(2027, 1, 1, tzinfo=UTC)


class Order(BaseModel):
    number: int = Field(alias="orderNumber")
    items: list[Item] = []

    @field_validator("number")
    @classmethod
    def not_thirteen(cls, number: int) -> int:
        if number == 13:
            raise ValueError("thirteen is no number of an order")
        return number


class Card(BaseModel):
    kind: Literal["card"]
    last_digits: str


class Transfer(BaseModel):
    kind: Literal["transfer"]
    iban: str


class Payment(RootModel[Card | Transfer]): ...


@dataclass
class Parcel:
    weight: float
    order: Order
    extra: list[Item] = field(default_factory=list)


class Shipment(msgspec.Struct):
    parcels: dict[str, Parcel]
    paid: Payment | None = None


ORDER = Order(orderNumber=7, items=[Item(sku="pen", count=2)])
PARCEL = Parcel(0.5, ORDER, [Item(sku="gift", count=1)])
SHIPMENT = Shipment({"a": PARCEL}, Payment(Transfer(kind="transfer", iban="DE02")))


@pytest.mark.parametrize(
    ("data", "type"),
    [
        (ORDER, Order),
        ([ORDER, ORDER], list[Order]),
        (None, Order | None),
        ({"first": ORDER}, dict[str, Order]),
        (PARCEL, Parcel),
        (SHIPMENT, Shipment),
        (Payment(Card(kind="card", last_digits="1881")), Payment),
    ],
    ids=range(7),
)
async def test_a_model_is_pushed_and_popped(client: Client, queue: str, data: Any, type: Any) -> None:
    await client.push(queue, data)
    [message] = await client.pop(queue, type=type)
    assert message.data == data


async def test_an_embedded_broker_takes_and_returns_models() -> None:
    async with Broker.open("sqlite:///:memory:") as broker:
        await broker.push("orders", ORDER)
        async with broker.transaction() as transaction:
            transaction.push("orders", [ORDER])
        first, second = await broker.pop("orders", batch=2)
        assert first.data == second.data[0] == ORDER.model_dump(by_alias=True, mode="json")
        assert decoder_of(Order)(first.raw) == ORDER


WRONG = '{"orderNumber": "x", "items": [{"sku": "pen", "count": 0}]}'


@pytest.mark.parametrize(
    ("type", "data", "error"),
    [
        (Order, {"items": []}, "Field required - at `$.orderNumber`"),
        (Order, {"orderNumber": 13}, "Value error, thirteen is no number of an order - at `$.orderNumber`"),
        (
            Order,
            msgspec.Raw(WRONG.encode()),
            "Input should be a valid integer, unable to parse string as an integer - at `$.orderNumber`; "
            "Input should be greater than or equal to 1 - at `$.items[0].count`",
        ),
        (list[Order], [{"orderNumber": 1}, {"orderNumber": None}], "a valid integer - at `$[1].orderNumber`"),
        (Parcel, {"weight": 1, "order": 3}, "Input should be an object - at `$.order`"),
        (Parcel, {"weight": "1", "order": {}}, "Expected `float`, got `str` - at `$.weight`"),
        (Shipment, {"parcels": {"a": {"weight": 1, "order": {}}}}, "at `$.parcels[...].order.orderNumber`"),
        (Order, "text", "Input should be an object"),
        (list[Order], [*[{}] * 5], "Field required - at `$[0].orderNumber`"),
        (RootModel[list[Item]], [{}] * 3, "; and 3 more"),
    ],
)  # fmt: skip
async def test_an_error_names_the_path_to_each_mistake(
    client: Client, queue: str, type: Any, data: Any, error: str
) -> None:
    await client.push(queue, data)
    [message] = await client.pop(queue, type=type)
    with pytest.raises(InvalidRequest) as refused:
        _ = message.data
    assert str(refused.value).startswith(f"the data of message {message.id} does not fit: ")
    assert error in str(refused.value)


class Point(BaseModel):
    x: float


async def test_a_model_with_a_number_that_json_lacks_is_refused(client: Client, queue: str) -> None:
    with pytest.raises(InvalidRequest, match="it has nan, and JSON has no such number"):
        await client.push(queue, {"point": Point(x=float("nan"))})
    with pytest.raises(InvalidRequest, match="Encoding objects of type Engine is unsupported"):
        await client.push(queue, [Point(x=1), Engine()])


def shop(done: list[Any]) -> App:
    app = App("shop")

    @app.handler("orders")
    async def handle(order: Order, ctx: Context) -> None:
        done.append(order)
        ctx.push("parcels", PARCEL)

    @app.handler("blocking")
    def block(order: Order) -> None:
        done.append(order)

    @app.batch("parcels", size=10)
    async def pack(parcels: list[Parcel]) -> None:
        done.extend(parcels)

    @app.batch("items", size=10)
    async def sort(items: list[Item]) -> None:
        done.append(items)

    @app.command("price")
    async def price(order: Order, ctx: Context) -> Any:
        return await ctx.once("priced", lambda: copied(order), type=Order)

    @app.handler("tell")
    async def tell(payment: Payment) -> Done:
        return Done(payment)

    return app


async def copied(order: Order) -> Order:
    return order.model_copy(update={"number": order.number + 1})


async def test_handlers_get_models_and_push_and_return_them() -> None:
    done: list[Any] = []
    async with AppTest(shop(done)) as test:
        await test.push("orders", ORDER)
        await test.push("blocking", ORDER)
        await test.drain("orders", "blocking")
        assert done == [ORDER, ORDER]
        assert await test.pushed("parcels", type=Parcel) == [PARCEL]
        done.clear()
        await test.drain("parcels")
        assert done == [PARCEL]
        pushed = await test.push("price", ORDER)
        told = await test.push("tell", Card(kind="card", last_digits="1881"))
        await test.drain("price", "tell")
        assert (await test.client.result("price", pushed.transaction_id, type=Order)).number == 8
        assert (await test.client.result("tell", told.transaction_id, type=Payment)).root.last_digits == "1881"


async def test_what_fits_no_model_is_a_dead_letter_and_the_rest_of_a_batch_is_handled() -> None:
    done: list[Any] = []
    async with AppTest(shop(done)) as test:
        for count in (1, 0, 2):
            await test.push("items", {"sku": "pen", "count": count})
        await test.drain("items")
        assert [item.count for item in done[0]] == [1, 2]
        [letter] = await test.dead_letters("items")
        assert letter.error == (
            "the data does not fit shop.<locals>.sort: Input should be greater than or equal to 1 - at `$.count`"
        )


class Engine: ...


@dataclass
class Settings:
    engine: Engine


async def engines(engines: list[Engine]) -> None: ...
async def either(one: Card | Transfer) -> None: ...
async def numbers(numbers: dict[str, complex]) -> None: ...
async def engine(engine: Engine) -> None: ...
async def settings(settings: Settings) -> None: ...


@pytest.mark.parametrize("function", [engines, either, numbers])
@pytest.mark.parametrize("kind", ["handler", "command"])
def test_a_type_that_cannot_be_decoded_is_refused_by_the_decorator(function: Callable[..., Any], kind: str) -> None:
    app = App()
    with pytest.raises(InvalidRequest, match=f"{function.__name__}: messages cannot be decoded as"):
        getattr(app, kind)("q")(function)
    assert not app.handlers


def test_a_batch_of_a_type_that_cannot_be_decoded_is_refused_by_the_decorator() -> None:
    with pytest.raises(InvalidRequest, match=r"engines: messages cannot be decoded .* use a dataclass"):
        App().batch("q")(engines)
    with pytest.raises(InvalidRequest, match="takes a batch: annotate it as a list"):
        App().batch("q")(numbers)


@pytest.mark.parametrize(("function", "made"), [(engine, Engine), (settings, Settings)])
def test_a_class_that_nothing_provides_is_refused_before_the_worker_starts(
    function: Callable[..., Any], made: type
) -> None:
    app = App()
    app.handler("q")(function)
    with pytest.raises(InvalidRequest, match=f"{function.__name__}: messages cannot be decoded as .*{made.__name__}"):
        Worker(app)

    def provided() -> Any: ...

    provided.__annotations__["return"] = made
    app.provide(provided)
    Worker(app)


@pytest.mark.parametrize("type", [complex, list[complex], Card | Transfer, Card | int, 3, "Card"])
async def test_a_pop_as_a_type_that_cannot_be_decoded_is_refused(client: Client, queue: str, type: Any) -> None:
    with pytest.raises(InvalidRequest, match="messages cannot be decoded as"):
        await client.pop(queue, type=type)
