"""All limits. Each protects memory or the size of a key; none is a business rule."""

from __future__ import annotations

NAME_CHARS_MAX = 255  # queue, partition, group, transactionId: fits an index entry on both stores
TYPE_CHARS_MAX = 255
HEADERS_MAX = 64
HEADER_CHARS_MAX = 4096  # names and values of all headers of one message together
TRACEBACK_BYTES_MAX = 8192  # of each kept error; the oldest frames are cut
ERROR_CHARS_MAX = 4096  # error texts are stored with their message; longer ones are cut
PROGRESS_CHARS_MAX = 200
PROGRESS_ITEMS_MAX = 1000  # reports of progress in one request
MESSAGE_BYTES_MAX = 4 * 1024 * 1024
BATCH_ITEMS_MAX = 10_000
NEW_NAMES_MAX = 1_000  # queues and partitions that one request may create
REQUEST_BYTES_MAX = 32 * 1024 * 1024
JSON_DEPTH_MAX = 128
LEASE_SECONDS_MAX = 7 * 24 * 3600
RENEW_SECONDS = 60
"""Length of a renewal that names only a lease."""
WAIT_SECONDS_MAX = 3600
POLLS_MAX = 8_000  # long polls at once; fewer than connections, so that pushes and acks find one
POP_BYTES_MAX = 32 * 1024 * 1024  # messages of one pop; at least one message is always delivered
SEGMENT_BYTES_MAX = 1024 * 1024  # the flush of a lane is cut into segments of this size, so that no read loads more
SECONDS_MAX = 10 * 365 * 24 * 3600  # any duration option
NEVER_AT = 253_370_764_800_000_000  # microseconds: the year 9999, as the ready time of a stopped lane
COUNT_MAX = 2**53  # any counting option: exact in every JSON parser
RESULT_BYTES_MAX = 64 * 1024
TRACE_BYTES_MAX = 64 * 1024
TRACE_NAMES_MAX = 64
STATE_BYTES_MAX = 256 * 1024
STATE_KEY_CHARS_MAX = 512  # at four bytes each still an index entry on both stores
