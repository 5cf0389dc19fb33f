"""A Django application that stores an order and enqueues its message in one transaction.

    python django_app.py migrate
    uvicorn django_app:web
    fairlane worker run django_app:jobs

The broker uses the PostgreSQL database of the application: `fairlane serve --store postgresql://...`.
"""

import json
import os
import sys
from urllib.parse import parse_qs, urlsplit

import django
from django.conf import settings
from django.core.asgi import get_asgi_application
from django.db import connection, models, transaction
from django.http import HttpRequest, JsonResponse
from django.urls import path

from fairlane import App
from fairlane.sql import enqueue

DATABASE = urlsplit(os.environ.get("DATABASE_URL", "postgresql://localhost/shop"))
settings.configure(
    ALLOWED_HOSTS=["*"],
    DATABASES={
        "default": {
            "ENGINE": "django.db.backends.postgresql",
            "NAME": DATABASE.path.lstrip("/"),
            "USER": DATABASE.username or "",
            "HOST": parse_qs(DATABASE.query).get("host", [DATABASE.hostname or ""])[0],
        }
    },
    ROOT_URLCONF=__name__,
    SECRET_KEY="replace this",
    USE_TZ=True,
)
django.setup()
jobs = App("shop")


class Order(models.Model):
    items = models.IntegerField()
    total = models.IntegerField(null=True)

    class Meta:
        app_label = "shop"


@jobs.handler("price", max_attempts=3)
def price(order: int) -> None:
    """Price an order. A repeated attempt writes the same total."""
    Order.objects.filter(id=order).update(total=42 * models.F("items"))


def take(request: HttpRequest) -> JsonResponse:
    items = json.loads(request.body)["items"]
    with transaction.atomic():
        order = Order.objects.create(items=items)
        enqueue(connection, "price", order.id, partition=str(order.id))
        if items > 100:
            raise ValueError("so many are not in stock")  # neither order nor message is stored
    return JsonResponse({"id": order.id}, status=202)


def show(request: HttpRequest, id: int) -> JsonResponse:
    return JsonResponse({"total": Order.objects.get(id=id).total, "orders": Order.objects.count()})


urlpatterns = [path("orders", take), path("orders/<int:id>", show)]
web = get_asgi_application()

if __name__ == "__main__" and sys.argv[1:] == ["migrate"]:
    with connection.schema_editor() as editor:
        editor.create_model(Order)
