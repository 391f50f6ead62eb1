"""Interfaces that ingest and presence call and packages above implement."""

from abc import abstractmethod
from collections.abc import Sequence
from datetime import datetime
from typing import Protocol

from libs.common.bus import OutgoingMessage
from libs.common.store.mongo import Document
from services.device.telemetry.batch import Batch, KeptFrame, ValidReport
from services.device.telemetry.uplink import Uplink
from services.device.things.model import Thing

LateTenants = set[str]
"""Tenants whose codecs have not finished in time."""


class FrameDecoder(Protocol):
    """Decodes frames with the codecs of their products, and builds their documents."""

    @abstractmethod
    async def decode(self, batch: Batch, *, wait: bool) -> LateTenants:
        """Decode the undecoded frames of a batch and add the results to it.

        Return the tenants whose codecs are late. Their frames stay undecoded, and the next call
        continues to decode them. With `wait`, the call waits for all codecs.
        """

    @abstractmethod
    async def mark_stored_as_duplicates(self, batch: Batch) -> None:
        """Move the frames of a batch that are stored already to its duplicates."""

    @abstractmethod
    def build_document(self, frame: KeptFrame) -> tuple[str, Document]:
        """Return the collection and the document in which a frame is stored."""


class CommandCloser(Protocol):
    """Closes commands when devices reply or report."""

    @abstractmethod
    async def close_by_replies(self, replies: Sequence[tuple[Uplink, Thing]], batch: Batch) -> None:
        """Close the commands that replies answer, in order.

        Add rejected replies, confirmed properties and events to the batch.
        """

    @abstractmethod
    async def confirm_by_reports(self, reports: Sequence[ValidReport]) -> None:
        """Close property updates whose values stored reports show. Repeating it changes nothing."""


class AlarmTrigger(Protocol):
    """Finds the alarms that values may open or close."""

    @abstractmethod
    async def refresh_rules(self) -> None:
        """Read changed rules while a batch is stored; raise `StoreError`."""

    @abstractmethod
    async def messages_for_batch(self, batch: Batch) -> list[OutgoingMessage]:
        """Return messages for the alarms that a stored batch may open or close.

        Raises `StoreError` when the rules cannot be read.
        """


class ReconnectListener(Protocol):
    """Resumes deliveries to devices that have connected."""

    @abstractmethod
    async def resume_deliveries(self, thing_ids: Sequence[int], at: datetime) -> None:
        """Send the commands that wait for these devices, at `at` or later."""
