"""Pages of an API: the URL to request, and the records in its responses."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, urlencode, urljoin, urlsplit, urlunsplit

import msgspec

from fairlane.errors import FairlaneError, InvalidRequest
from fairlane.outbound.reply import Reply
from fairlane.poller.source import Source, origin
from fairlane.wire.sources import RECORDS_MAX, SourceRecord

_PART_BYTES_MAX = 8 * 1024 * 1024
_LINK = re.compile(r"<([^>]*)>((?:\s*;\s*[^;,=\s]+(?:=(?:\"[^\"]*\"|[^;,\s]*))?)*)")
_REL = re.compile(r";\s*rel=(?:\"([^\"]*)\"|([^;,\s]*))", re.IGNORECASE)
_canonical = msgspec.json.Encoder(order="deterministic").encode
_decode_object = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_decode_list = msgspec.json.Decoder(list[msgspec.Raw]).decode


class FetchedPage(NamedTuple):
    """The records of one page, and the cursor of the next. `end` is True on the last page."""

    records: list[SourceRecord]
    cursor: str | None
    end: bool
    total: int | None


def url_of(source: Source, cursor: str | None) -> str:
    """Return the URL of the page at a cursor. None is the first page."""
    if source.paging == "link":
        if cursor is not None and _same_server(source, cursor):
            return cursor
        cursor = None  # left over from a source with another URL or another kind of paging
    parts = urlsplit(source.url)
    asked = {source.size_param: str(source.page_size)} if source.size_param else {}
    if cursor is not None:
        asked[source.cursor_param] = cursor
    query = [(name, value) for name, value in parse_qsl(parts.query, keep_blank_values=True) if name not in asked]
    return urlunsplit(parts._replace(query=urlencode([*query, *asked.items()])))


def page_of(source: Source, cursor: str | None, reply: Reply) -> FetchedPage:
    """Parse the response for the page at `cursor`.

    Raises FairlaneError if it does not have the form that the source declares.
    """
    try:
        found = _decode_list(_at(reply.body, source.items))
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        where = f"at {source.items!r}" if source.items else "as the answer itself"
        raise FairlaneError(f"{source.url} has no list of records {where}: {error}") from None
    records = [_record(source, index, raw) for index, raw in enumerate(found)]
    total = _total(source, reply.body)
    if source.paging == "id":
        return _page_by_id(source, records, cursor, total)
    following = _token(source, reply.body) if source.paging == "token" else _link(source, cursor, reply)
    if following is None:
        # The last page is read again next time, because new records appear on it or after it.
        return FetchedPage(records, url_of(source, cursor) if source.paging == "link" else cursor, True, total)
    return FetchedPage(records, following, False, total)


def _page_by_id(source: Source, records: list[SourceRecord], cursor: str | None, total: int | None) -> FetchedPage:
    """Build the page of a source that pages by id.

    A short page need not be the last, because some APIs return fewer records than requested. The last page is empty, or
    has only the record at the cursor if the API includes it.
    """
    if not records or (source.page_size > 1 and [record.key for record in records] == [cursor]):
        return FetchedPage(records, cursor, True, total)
    return FetchedPage(records, records[-1].key, False, total)


def _record(source: Source, index: int, raw: msgspec.Raw) -> SourceRecord:
    try:
        key = msgspec.json.decode(_at(raw, source.id))
        value = msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise FairlaneError(f"record {index} of {source.url} has no {source.id!r}: {error}") from None
    if isinstance(key, bool) or not isinstance(key, str | int) or key == "":
        raise FairlaneError(f"record {index} of {source.url} has no id at {source.id!r} but {key!r:.80}")
    if isinstance(value, dict):
        value = {name: part for name, part in value.items() if name not in source.ignore}
    digest = hashlib.sha256(_canonical(value)).hexdigest() + _rule(tuple(source.ignore))
    return SourceRecord(key=str(key), hash=digest, data=raw.copy(), partition=source.partition)


@lru_cache
def _rule(ignore: tuple[str, ...]) -> str:
    """Return a suffix for hashes that depends on the ignored fields.

    Changing those fields then does not look like a change of every record.
    """
    return "#" + hashlib.sha256(_canonical(sorted(set(ignore)))).hexdigest()[:16] if ignore else ""


def _at(raw: bytes | msgspec.Raw, path: str) -> bytes | msgspec.Raw:
    for part in path.split(".") if path else ():
        found = _decode_object(raw)
        if part not in found:
            raise msgspec.DecodeError(f"there is no {part!r}")
        raw = found[part]
    return raw


def _value(body: bytes, path: str) -> Any:
    """Return the value at a path of a body, or None if the path does not exist."""
    try:
        return msgspec.json.decode(_at(body, path))
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


def _total(source: Source, body: bytes) -> int | None:
    total = None if source.total is None else _value(body, source.total)
    return total if isinstance(total, int) else None


def _token(source: Source, body: bytes) -> str | None:
    token = _value(body, source.next)
    if token is None or token is False or token == "":
        return None
    if isinstance(token, bool) or not isinstance(token, str | int):
        raise FairlaneError(f"{source.url} has no token at {source.next!r} but {token!r:.80}")
    return str(token)


def _link(source: Source, cursor: str | None, reply: Reply) -> str | None:
    """Return the `next` URL of the Link header.

    Raises InvalidRequest if it leads to another server, because headers with secrets are sent along.
    """
    header = next((value for name, value in reply.headers.items() if name.lower() == "link"), "")
    for target, parameters in _LINK.findall(header):
        rel = _REL.search(parameters)
        if rel and "next" in (rel[1] or rel[2] or "").lower().split():
            try:
                url: str = urljoin(url_of(source, cursor), target)
            except ValueError:
                raise InvalidRequest(
                    f"the next page of {source.url} is said to be at {target!r:.200}, no URL"
                ) from None
            if not _same_server(source, url):
                raise InvalidRequest(f"the next page of {source.url} is said to be at another server: {url:.200}")
            return url
    return None


def _same_server(source: Source, url: str) -> bool:
    try:
        return origin(url) == origin(source.url)
    except InvalidRequest:
        return False


def parts_of(records: list[SourceRecord]) -> Iterator[list[SourceRecord]]:
    """Split records into parts that fit into one commit. Without records, yields one empty part."""
    part: list[SourceRecord] = []
    size = 0
    for record in records:
        if len(part) == RECORDS_MAX or (part and size + len(record.data) > _PART_BYTES_MAX):
            yield part
            part, size = [], 0
        part.append(record)
        size += len(record.data)
    yield part
