"""How far the history of a device has come, and which reports are new.

Reports may arrive at the other platform a little out of order, so each time the last minutes
are asked for again; what was taken over then is known by its digest.
"""

import hashlib
from collections.abc import Iterable

import msgspec

from services.management.builtin.openapi_client.schemas import Record
from services.management.builtin.openapi_client.store import Link

OVERLAP_MS = 10 * 60_000
MOST_SEEN = 2000
"""Most digests of one device; beyond that the oldest are forgotten and only time counts."""
FIRST_DAYS = 30
"""Days of history that a first sync asks for."""
DAY_MS = 86_400_000


def start_of(link: Link, now: int) -> int:
    """From when on to ask, ms."""
    return max(link.at - OVERLAP_MS, now - FIRST_DAYS * DAY_MS, 0)


def digest_of(record: Record) -> str:
    """Names a report by its time and content."""
    content = msgspec.json.encode([record.ts, record.properties], order="deterministic")
    return hashlib.blake2b(content, digest_size=12).hexdigest()


def unseen(link: Link, records: Iterable[Record]) -> dict[str, Record]:
    """Those that were not taken over yet, by digest."""
    oldest = min(link.seen.values(), default=0) if len(link.seen) >= MOST_SEEN else 0
    found = {digest_of(one): one for one in records if one.ts >= oldest}
    return {digest: one for digest, one in found.items() if digest not in link.seen}


def remember(link: Link, taken: dict[str, Record]) -> None:
    """Move on behind reports that were taken over."""
    link.at = max([link.at, *(one.ts for one in taken.values())])
    seen = link.seen | {digest: one.ts for digest, one in taken.items()}
    recent = [(ts, digest) for digest, ts in seen.items() if ts >= link.at - OVERLAP_MS]
    link.seen = {digest: ts for ts, digest in sorted(recent)[-MOST_SEEN:]}
