"""The poller of one source."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Protocol

import msgspec

from fairlane.client.client import Client
from fairlane.errors import Conflict, FairlaneError, InvalidRequest, LeaseLost, Overloaded, Unavailable
from fairlane.model.ids import uuid7
from fairlane.model.limits import REQUEST_BYTES_MAX
from fairlane.model.names import DEFAULT_SERVER
from fairlane.otel import tracing
from fairlane.outbound.addresses import Allowed
from fairlane.outbound.client import OutboundClient
from fairlane.poller.pages import FetchedPage, page_of, parts_of, url_of
from fairlane.poller.source import Source
from fairlane.runtime.backoff import backoff
from fairlane.runtime.clock import wall_clock
from fairlane.wire.sources import SourceCommitted, SourcePage, SourceRecord, SourceView

_REFUSED_CURSOR = (400, 404, 410, 422)
_STUCK_MAX = 3  # attempts to fetch a page that leads back to one already read
_FIRST_SECONDS = 0.2
_SECONDS_MAX = 60.0
_ANSWER_SECONDS = 30.0

log = logging.getLogger("fairlane.poll")


class Progress(msgspec.Struct):
    """Progress of a poller since it started."""

    pages: int = 0
    records: int = 0
    """Records read."""
    created: int = 0
    changed: int = 0
    deleted: int = 0
    total: int | None = None
    """Total number of records that the API reports, or None if it reports none."""
    sweeping: bool = False


class SourceAccess(Protocol):
    """Access to the sources and their cursors, through a client or a broker in the same process."""

    async def get(self, name: str) -> SourceView: ...
    async def lease(self, name: str, *, seconds: int, token: int | None = None) -> SourceView: ...
    async def release(self, name: str, token: int) -> bool: ...
    async def commit(self, name: str, page: SourcePage) -> SourceCommitted: ...


class Poller:
    """A poller that reads one source under its lease.

    Cancel `run` or `once` to stop it; records that were not committed are read again later. `allowed` lists further
    addresses that it may call. It may always call the public internet.
    """

    def __init__(
        self,
        source: Source,
        sources: SourceAccess,
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
        self._outbound = OutboundClient(allowed, seconds=_ANSWER_SECONDS, bytes_max=REQUEST_BYTES_MAX)
        self._at: SourceView
        self._read_at = -source.every_seconds

    async def run(self) -> None:
        """Poll until cancelled.

        Outages of the API and the broker are retried. The poller waits while another one holds the source.
        """
        failures = 0
        try:
            while True:
                try:
                    async with self._hold_lease():
                        failures = 0
                        while True:
                            await self._poll_once()
                            await asyncio.sleep(max(0.0, self._read_at + self.source.every_seconds - time.monotonic()))
                except FairlaneError as error:
                    failures += 1
                    await asyncio.sleep(self._pause_after(error, failures))
        finally:
            await self._outbound.close()

    async def once(self, *, sweep: bool = False) -> Progress:
        """Read all new records.

        Sweeps the whole source as well if that is due or `sweep` is set. Returns the progress.
        """
        try:
            async with self._hold_lease():
                await self._poll_once(sweep=sweep)
        finally:
            await self._outbound.close()
        return self.progress

    def _pause_after(self, error: FairlaneError, failures: int) -> float:
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
    async def _hold_lease(self) -> AsyncIterator[None]:
        name, seconds = self.source.name, self.source.lease_seconds
        self._at = await self._sources.lease(name, seconds=seconds)
        token = self._at.token
        renewing = asyncio.create_task(self._renew_lease(token))
        try:
            yield
        finally:
            renewing.cancel()
            await asyncio.wait([renewing])
            with contextlib.suppress(FairlaneError):
                await self._sources.release(name, token)

    async def _renew_lease(self, token: int) -> None:
        """Renew the lease until cancelled. Returns if the lease is lost: the next commit is refused then."""
        while True:
            await asyncio.sleep(self.source.lease_seconds / 3)
            try:
                await self._sources.lease(self.source.name, seconds=self.source.lease_seconds, token=token)
            except LeaseLost:
                return
            except Exception as error:  # the next renewal may succeed
                level = logging.DEBUG if isinstance(error, FairlaneError) else logging.ERROR
                fields = {"source": self.source.name, "error": error}
                log.log(level, "cannot renew the lease of source %(source)r: %(error)s", fields, exc_info=error)

    async def _poll_once(self, *, sweep: bool = False) -> None:
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
        """Read and commit pages of new records up to the last page."""
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
        """Read the whole source again, or continue an interrupted sweep. New records are still read during a sweep.

        A source that reports no records at all is not swept. If the caller `asked` for the sweep, raises Unavailable
        for it.
        """
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
        self, page: FetchedPage, cursor: str | None, *, sweep: bool = False, begin: bool = False, last: bool = False
    ) -> SourceCommitted:
        """Commit a page, in parts if it is too large for one commit. The last part moves the cursor."""
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
        """Commit some records. Retries send the same revision, so that they count once."""
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
            trace_context=tracing.current_context(),
        )
        done = await self._commit_with_retries(body)
        known = self._at.records + done.created - done.deleted
        self._at = msgspec.structs.replace(self._at, revision=done.revision, records=known)
        self.progress.records += len(records)
        self.progress.created += done.created
        self.progress.changed += done.changed
        self.progress.deleted += done.deleted
        return done

    async def _commit_with_retries(self, body: SourcePage) -> SourceCommitted:
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

    async def _fetch(self, cursor: str | None, passed: set[str | None]) -> FetchedPage:
        """Return the page at a cursor. A page that leads back to one already read is requested again.

        Raises Unavailable if it keeps leading back.
        """
        for stuck in range(_STUCK_MAX):
            page = await self._request_page(cursor)
            if page.end or page.cursor not in passed:
                return page
            await asyncio.sleep(backoff(stuck + 1, base=_FIRST_SECONDS, most=_SECONDS_MAX))
        raise Unavailable(f"{self.source.url} repeats its pages: the one after {cursor!r:.80} leads back")

    async def _request_page(self, cursor: str | None) -> FetchedPage:
        source = self.source
        reply = await self._outbound.send("GET", url_of(source, cursor), headers=source.headers)
        if not reply.whole:
            raise FairlaneError(f"the answer has more than {REQUEST_BYTES_MAX} bytes; ask for smaller pages")
        if cursor is not None and reply.status in _REFUSED_CURSOR:
            log.warning(
                "%(url)s refuses cursor %(cursor).80r with %(status)d; reading from the beginning",
                {"url": source.url, "cursor": cursor, "status": reply.status},
            )
            return await self._request_page(None)
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
    """Poll a source until cancelled, or once with `once`. With `sweep`, `once` also reads the whole source again."""
    async with Client(servers) as client:
        poller = Poller(source, client.sources, report=report)
        await (poller.once(sweep=sweep) if once else poller.run())
        return poller.progress
