"""The sections of `python -m bench`, in the order in which they run."""

from __future__ import annotations

from bench.sections.clients import CLIENTS
from bench.sections.core import CORE
from bench.sections.delivery import DELIVERY
from bench.sections.embedded import EMBEDDED_SECTION
from bench.sections.enqueue import ENQUEUE
from bench.sections.growth import GROWTH
from bench.sections.http import HTTP
from bench.sections.jobs import JOBS

SECTIONS = (HTTP, CLIENTS, EMBEDDED_SECTION, JOBS, ENQUEUE, DELIVERY, GROWTH)
ALL = (CORE, *SECTIONS)
"""`core` compares two checkouts and runs only when it is named."""
