"""Limits, all of them. A limit protects memory or a key's size; none is a business rule."""

from __future__ import annotations

NAME_CHARS_MAX = 255  # queue, partition, group, transactionId: fits an index entry on both stores
TYPE_CHARS_MAX = 255
HEADERS_MAX = 64
HEADER_CHARS_MAX = 4096  # all names and values of one message together
ERROR_CHARS_MAX = 4096  # an error text is kept with the message it belongs to; longer ones are cut
MESSAGE_BYTES_MAX = 4 * 1024 * 1024
BATCH_ITEMS_MAX = 10_000
NEW_NAMES_MAX = 1_000  # queues and partitions that one request may make
REQUEST_BYTES_MAX = 32 * 1024 * 1024
JSON_DEPTH_MAX = 128
LEASE_SECONDS_MAX = 7 * 24 * 3600
RENEW_SECONDS = 60
"""Of a renewal that names nothing but a lease."""
WAIT_SECONDS_MAX = 3600
POLLS_MAX = 8_000  # that wait at once; fewer than connections, so that pushes and acks find one
POP_BYTES_MAX = 32 * 1024 * 1024  # one pop's messages; at least one message is always delivered
SEGMENT_BYTES_MAX = 1024 * 1024  # a lane's flush is cut into segments of this size, so that a read never loads more
SECONDS_MAX = 10 * 365 * 24 * 3600  # any duration option
NEVER_AT = 253_370_764_800_000_000  # microseconds: the year 9999, when a lane that is stopped would be ready
COUNT_MAX = 2**53  # any counting option: exact in every JSON reader
RESULT_BYTES_MAX = 64 * 1024
TRACE_BYTES_MAX = 64 * 1024
TRACE_NAMES_MAX = 64
STATE_BYTES_MAX = 256 * 1024
STATE_KEY_CHARS_MAX = 512  # of four bytes each, still an index entry on both stores
