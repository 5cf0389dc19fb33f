"""The poller of one source."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Protocol

import msgspec

from fairlane import tracing
from fairlane.client.client import Client
from fairlane.errors import Conflict, FairlaneError, InvalidRequest, LeaseLost, Overloaded, Unavailable
from fairlane.model.ids import uuid7
from fairlane.model.limits import REQUEST_BYTES_MAX
from fairlane.model.names import DEFAULT_SERVER
from fairlane.outbound.addresses import Allowed
from fairlane.outbound.caller import Caller
from fairlane.poller.pages import Page, page_of, parts_of, url_of
from fairlane.poller.source import Source
from fairlane.runtime.backoff import backoff
from fairlane.runtime.clock import wall_clock
from fairlane.wire.sources import SourceCommitted, SourcePage, SourceRecord, SourceView

_REFUSED_CURSOR = (400, 404, 410, 422)
_STUCK_MAX = 3  # times that a page which leads nowhere is asked for again
_FIRST_SECONDS = 0.2
_SECONDS_MAX = 60.0
_ANSWER_SECONDS = 30.0

log = logging.getLogger("fairlane.poll")


class Progress(msgspec.Struct):
    """Progress of a poller since it started."""

    pages: int = 0
    records: int = 0
    """That were read."""
    created: int = 0
    changed: int = 0
    deleted: int = 0
    total: int | None = None
    """How many records the API says there are."""
    sweeping: bool = False


class Sources(Protocol):
    """The sources, and how far each was read: those of a client, or of a broker in the same process."""

    async def get(self, name: str) -> SourceView: ...
    async def lease(self, name: str, *, seconds: int, token: int | None = None) -> SourceView: ...
    async def release(self, name: str, token: int) -> bool: ...
    async def commit(self, name: str, page: SourcePage) -> SourceCommitted: ...


class Poller:
    """A poller: reads a source under its lease. Cancel what it runs to stop it: what was not committed is read again.
    `allowed` is what it may ask besides the public internet."""

    def __init__(
        self,
        source: Source,
        sources: Sources,
        *,
        report: Callable[[Progress], None] = lambda _: None,
        allowed: Allowed | None = None,
    ) -> None:
        self.source = source.check()
        self.progress = Progress()
        self._spans = tracing.spans()
        self._sources = sources
        self._report = report
        allowed = allowed or Allowed(everything=source.allow_private)
        self._caller = Caller(allowed, seconds=_ANSWER_SECONDS, bytes_max=REQUEST_BYTES_MAX)
        self._at: SourceView
        self._read_at = -source.every_seconds

    async def run(self) -> None:
        """Poll until cancelled. Outages of the API and of the broker are waited for; while another poller has the
        source this one stands by."""
        failures = 0
        try:
            while True:
                try:
                    async with self._leased():
                        failures = 0
                        while True:
                            await self._pass()
                            await asyncio.sleep(max(0.0, self._read_at + self.source.every_seconds - time.monotonic()))
                except FairlaneError as error:
                    failures += 1
                    await asyncio.sleep(self._pause(error, failures))
        finally:
            await self._caller.close()

    async def once(self, *, sweep: bool = False) -> Progress:
        """Read what is new, and all again if that is due or asked for; then return."""
        try:
            async with self._leased():
                await self._pass(sweep=sweep)
        finally:
            await self._caller.close()
        return self.progress

    def _pause(self, error: FairlaneError, failures: int) -> float:
        if isinstance(error, Conflict):
            log.log(logging.INFO if failures == 1 else logging.DEBUG, "%s", error)
            return self.source.lease_seconds / 2
        if isinstance(error, Overloaded):
            pause = max(error.retry_after, backoff(failures, base=_FIRST_SECONDS, most=_SECONDS_MAX))
        elif error.retryable:
            pause = backoff(failures, base=_FIRST_SECONDS, most=_SECONDS_MAX)
        else:
            pause = self.source.every_seconds
        fields = {"source": self.source.name, "seconds": pause, "error": error}
        log.warning("cannot read source %(source)r, retrying in %(seconds).1f s: %(error)s", fields)
        return pause

    @contextlib.asynccontextmanager
    async def _leased(self) -> AsyncIterator[None]:
        name, seconds = self.source.name, self.source.lease_seconds
        self._at = await self._sources.lease(name, seconds=seconds)
        token = self._at.token
        keeping = asyncio.create_task(self._keep(token))
        try:
            yield
        finally:
            keeping.cancel()
            await asyncio.wait([keeping])
            with contextlib.suppress(FairlaneError):
                await self._sources.release(name, token)

    async def _keep(self, token: int) -> None:
        """A commit under a lease that ended is refused, so that nobody needs to be told."""
        while True:
            await asyncio.sleep(self.source.lease_seconds / 3)
            try:
                await self._sources.lease(self.source.name, seconds=self.source.lease_seconds, token=token)
            except LeaseLost:
                return
            except Exception as error:  # the next one may get through
                level = logging.DEBUG if isinstance(error, FairlaneError) else logging.ERROR
                fields = {"source": self.source.name, "error": error}
                log.log(level, "cannot renew the lease of source %(source)r: %(error)s", fields, exc_info=error)

    async def _pass(self, *, sweep: bool = False) -> None:
        with contextlib.nullcontext() if self._spans is None else self._spans.poll(self.source.name):
            await self._read()
            if sweep or self._sweep_due():
                await self._sweep(asked=sweep)

    def _sweep_due(self) -> bool:
        if self.source.sweep_seconds is None:
            return False
        since = self._at.swept_at or self._at.created_at
        return self._at.sweeping or wall_clock() - since >= self.source.sweep_seconds * 1_000_000

    async def _read(self) -> None:
        """Commit page after page of new records, to the last one."""
        self._read_at = time.monotonic()
        passed = {self._at.cursor}
        while True:
            page = await self._fetch(self._at.cursor, passed)
            if page.records or page.cursor != self._at.cursor:
                await self._commit(page, self._at.cursor)
                self._at = msgspec.structs.replace(self._at, cursor=page.cursor)
            if page.end:
                return
            passed.add(page.cursor)

    async def _sweep(self, *, asked: bool) -> None:
        """Read all again from the beginning, or go on where that was left; new records meanwhile are not kept
        waiting. A source that claims to be empty is not swept: that raises Unavailable if somebody `asked`."""
        begin = not self._at.sweeping
        cursor = None if begin else self._at.sweep_cursor
        passed = {cursor}
        while True:
            page = await self._fetch(cursor, passed)
            if not page.records and cursor is None and self._at.records and not self.source.may_be_empty:
                fields = {"source": self.source.name, "count": self._at.records}
                text = "source %(source)r answers that it is empty; its %(count)d known records stay"
                if asked:
                    raise Unavailable(f"{text % fields}, unless it is given --may-be-empty")
                log.warning(text, fields)
                return
            done = await self._commit(page, cursor, sweep=True, begin=begin, last=page.end)
            while done.more:
                done = await self._commit(page._replace(records=[]), cursor, sweep=True, last=True)
            if page.end:
                self._at = await self._sources.get(self.source.name)
                return
            begin, cursor = False, page.cursor
            passed.add(cursor)
            if time.monotonic() - self._read_at >= self.source.every_seconds:
                await self._read()

    async def _commit(
        self, page: Page, cursor: str | None, *, sweep: bool = False, begin: bool = False, last: bool = False
    ) -> SourceCommitted:
        """Of a page that is too large for one commit, the last part moves the cursor."""
        parts = list(parts_of(page.records))
        for part in parts[:-1]:
            await self._commit_part(part, cursor, sweep=sweep, begin=begin)
            begin = False
        done = await self._commit_part(parts[-1], page.cursor, sweep=sweep, begin=begin, last=last)
        self.progress.pages += 1
        self.progress.total = page.total if page.total is not None else self.progress.total
        self.progress.sweeping = sweep
        self._report(self.progress)
        return done

    async def _commit_part(
        self, records: list[SourceRecord], cursor: str | None, *, sweep: bool, begin: bool, last: bool = False
    ) -> SourceCommitted:
        """All tries have one revision, so that it counts once."""
        body = SourcePage(
            token=self._at.token,
            before=self._at.revision,
            revision=uuid7(),
            queue=self.source.queue,
            cursor=cursor,
            records=records,
            type=self.source.type,
            sweep=sweep,
            begin=begin,
            last=last,
            trace_context=tracing.current(),
        )
        done = await self._sent(body)
        known = self._at.records + done.created - done.deleted
        self._at = msgspec.structs.replace(self._at, revision=done.revision, records=known)
        self.progress.records += len(records)
        self.progress.created += done.created
        self.progress.changed += done.changed
        self.progress.deleted += done.deleted
        return done

    async def _sent(self, body: SourcePage) -> SourceCommitted:
        failures = 0
        while True:
            try:
                return await self._sources.commit(self.source.name, body)
            except FairlaneError as error:
                if not error.retryable:
                    raise
                failures += 1
                asked = error.retry_after if isinstance(error, Overloaded) else 0.0
                pause = max(asked, backoff(failures, base=_FIRST_SECONDS, most=_SECONDS_MAX))
                fields = {"source": self.source.name, "seconds": pause, "error": error}
                text = "cannot commit a page of source %(source)r, retrying in %(seconds).1f s: %(error)s"
                log.warning(text, fields)
                await asyncio.sleep(pause)

    async def _fetch(self, cursor: str | None, passed: set[str | None]) -> Page:
        """The page at a cursor. One that leads back to a page that was passed is asked for again, and not believed."""
        for stuck in range(_STUCK_MAX):
            page = await self._asked(cursor)
            if page.end or page.cursor not in passed:
                return page
            await asyncio.sleep(backoff(stuck + 1, base=_FIRST_SECONDS, most=_SECONDS_MAX))
        raise Unavailable(f"{self.source.url} repeats its pages: the one after {cursor!r:.80} leads back")

    async def _asked(self, cursor: str | None) -> Page:
        source = self.source
        reply = await self._caller.send("GET", url_of(source, cursor), headers=source.headers)
        if not reply.whole:
            raise FairlaneError(f"the answer has more than {REQUEST_BYTES_MAX} bytes; ask for smaller pages")
        if cursor is not None and reply.status in _REFUSED_CURSOR:
            log.warning(
                "%(url)s refuses cursor %(cursor).80r with %(status)d; reading from the beginning",
                {"url": source.url, "cursor": cursor, "status": reply.status},
            )
            return await self._asked(None)
        if 300 <= reply.status < 400:
            where = reply.headers.get("Location", "nowhere")
            raise InvalidRequest(f"{source.url} leads to {where:.200}; give that URL if it is meant")
        return page_of(source, cursor, reply.raise_for_status())


async def poll(
    source: Source,
    servers: str | Sequence[str] = DEFAULT_SERVER,
    *,
    once: bool = False,
    sweep: bool = False,
    report: Callable[[Progress], None] = lambda _: None,
) -> Progress:
    """Poll a source until cancelled, or `once`; then with `sweep` all is read again, whether that is due or not."""
    async with Client(servers) as client:
        poller = Poller(source, client.sources, report=report)
        await (poller.once(sweep=sweep) if once else poller.run())
        return poller.progress
