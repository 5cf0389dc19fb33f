"""What `python -m bench` measures, in its order."""

from __future__ import annotations

from bench.sections.clients import CLIENTS
from bench.sections.delivery import DELIVERY
from bench.sections.growth import GROWTH
from bench.sections.http import HTTP
from bench.sections.jobs import JOBS
from bench.sections.limits import LIMITS
from bench.sections.long import LONG
from bench.sections.shapes import SHAPES

SECTIONS = (LIMITS, HTTP, CLIENTS, JOBS, DELIVERY, GROWTH, SHAPES, LONG)
