"""Rules of the relay: senders, permitted reply subjects and contents. No I/O.

nats-server has already checked that the subject contains the sender's name.
"""

from collections.abc import Mapping
from typing import NamedTuple

import msgspec

from libs.common.bus.accounts import (
    ACK_SUBJECTS,
    CREATE_CONSUMER_SUBJECT,
    MAX_PULL_SECONDS,
    PULL_SUBJECT,
    RELAYED_STREAM,
    application_user,
    device_inbox_prefix,
    inbox_prefix,
)
from libs.common.contracts.integrations import integration_user
from libs.common.decoding import JSON_ERRORS

MAX_MESSAGE_ID_CHARACTERS = 256
"""Maximum characters of a message id."""
MESSAGE_ID_HEADER = "Nats-Msg-Id"
_BATCH_ID_HEADER = "Nats-Batch-Id"
_MAX_PULL_NS = MAX_PULL_SECONDS * 1_000_000_000


class RejectedError(Exception):
    """A message that is not relayed.

    `code` is the HTTP status of the error answer, which is not sent if `answered` is False.
    """

    def __init__(self, reason: str, code: int = 400, *, answered: bool = True) -> None:
        super().__init__(reason)
        self.reason = reason
        self.code = code
        self.answered = answered


class MessageSender(NamedTuple):
    """The sender of a message."""

    user: str
    """The NATS user."""
    inbox: str
    """The prefix of the sender's reply subjects."""


def parse_sender(subject: str) -> MessageSender:
    """Return the sender of a `subject` that matches `RELAYED_SUBJECTS`."""
    parts = subject.split(".")
    if parts[0] == "thing":
        return MessageSender(parts[1], f"{device_inbox_prefix(parts[1])}.")
    if parts[0] == "$JS":
        user = application_user(parts[parts.index(RELAYED_STREAM) + 1])
    else:
        user = integration_user(parts[-1])
    return MessageSender(user, f"{inbox_prefix(user)}.")


def require_own_reply_subject(sender: MessageSender, reply: str) -> str:
    """Return `reply`, which may be empty; raise `RejectedError` if outside the sender's inbox.

    Wildcards and blanks are rejected, because they would permit other subjects too.
    """
    if reply and (not reply.startswith(sender.inbox) or set(reply) & set("*> \t\r\n")):
        raise RejectedError("the reply subject is not in the sender's own inbox", 403)
    return reply


def build_relayed_headers(
    sender: MessageSender, headers: Mapping[str, str] | None
) -> dict[str, str]:
    """Return the header to relay: only the message id, prefixed by the sender's name.

    All other headers are for nats-server or our services, and external clients may not set them.
    Raises `RejectedError` for a message of an atomic batch and for an invalid message id.
    """
    if not headers:
        return {}
    if _BATCH_ID_HEADER in headers:
        raise RejectedError("atomic batches are not supported")
    message_id = headers.get(MESSAGE_ID_HEADER)
    if not message_id:
        return {}
    if set(message_id) & set("\r\n"):
        raise RejectedError("a header must not have a line break")
    if len(message_id) > MAX_MESSAGE_ID_CHARACTERS:
        raise RejectedError(
            f"{MESSAGE_ID_HEADER} is longer than {MAX_MESSAGE_ID_CHARACTERS} characters"
        )
    return {MESSAGE_ID_HEADER: f"{sender.user}/{message_id}"}


class _ConsumerConfig(msgspec.Struct, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """The permitted options of an application's durable pull consumer (ADR-13)."""

    name: str = ""
    durable_name: str = ""
    description: str = ""
    deliver_policy: str = ""
    opt_start_seq: int | None = None
    opt_start_time: str | None = None
    ack_policy: str = ""
    ack_wait: int | None = None
    max_deliver: int | None = None
    backoff: list[int] | None = None
    filter_subject: str = ""
    filter_subjects: list[str] | None = None
    replay_policy: str = ""
    sample_freq: str = ""
    max_waiting: int | None = None
    max_ack_pending: int | None = None
    headers_only: bool | None = None
    max_batch: int | None = None
    max_expires: int | None = None
    max_bytes: int | None = None
    inactive_threshold: int | None = None
    deliver_subject: str = ""
    deliver_group: str = ""
    idle_heartbeat: int | None = None
    flow_control: bool | None = None
    rate_limit_bps: int | None = None
    num_replicas: int = 0
    mem_storage: bool | None = None
    metadata: dict[str, str] | None = None


class _ConsumerCreation(
    msgspec.Struct, kw_only=True, forbid_unknown_fields=True, omit_defaults=True
):
    stream_name: str
    config: _ConsumerConfig
    action: str = ""
    pedantic: bool = False


_creation_decoder = msgspec.json.Decoder(_ConsumerCreation)
_PUSH_CONSUMER_FIELDS = (
    "deliver_subject",
    "deliver_group",
    "idle_heartbeat",
    "flow_control",
    "rate_limit_bps",
)
"""Fields of push consumers, which clients send empty for a pull consumer."""
MAX_WAITING_PULLS = 512
MAX_UNACKNOWLEDGED = 50_000
MAX_CONSUMER_CREATION_BYTES = 16 * 1024
"""Maximum bytes of a request to create a consumer."""
MAX_BACKOFFS = 32
"""Maximum entries of a back-off."""


def limit_consumer_creation(subject: str, body: bytes) -> bytes:
    """Return a limited request to create a consumer; raise `RejectedError`.

    A push consumer would publish in the account of the stream, and is therefore not supported.
    """
    if len(body) > MAX_CONSUMER_CREATION_BYTES:
        raise RejectedError(f"the request is larger than {MAX_CONSUMER_CREATION_BYTES} bytes", 413)
    try:
        creation = _creation_decoder.decode(body)
    except JSON_ERRORS as error:
        raise RejectedError(f"not a durable pull consumer: {error}") from error
    client_id = subject.split(".")[5]
    config = creation.config
    if creation.stream_name != RELAYED_STREAM:
        raise RejectedError(f"stream_name must be {RELAYED_STREAM}")
    if {config.name or client_id, config.durable_name} != {client_id}:
        raise RejectedError("name and durable_name must be the client id")
    if config.filter_subjects or config.filter_subject != ".".join(subject.split(".")[6:]):
        raise RejectedError("filter_subject must equal the end of the request's subject")
    for name in _PUSH_CONSUMER_FIELDS:
        if getattr(config, name):
            raise RejectedError(f"{name}: push consumers are not supported")
        setattr(config, name, "" if name.startswith("deliver") else None)
    if len(config.backoff or ()) > MAX_BACKOFFS:
        raise RejectedError(f"backoff must have at most {MAX_BACKOFFS} entries")
    config.num_replicas, config.sample_freq = 0, ""
    config.max_waiting = _cap_option(config.max_waiting, MAX_WAITING_PULLS)
    config.max_ack_pending = _cap_option(config.max_ack_pending, MAX_UNACKNOWLEDGED)
    return msgspec.json.encode(creation)


def _cap_option(requested: int | None, maximum: int) -> int | None:
    """Return `requested`, or `maximum` if it is greater or not positive; None stays None.

    nats-server has a default for None.
    """
    if requested is None:
        return None
    return maximum if requested <= 0 else min(requested, maximum)


class _PullRequest(msgspec.Struct, omit_defaults=True, forbid_unknown_fields=True):
    batch: int = 0
    expires: int = 0
    no_wait: bool = False
    max_bytes: int = 0
    idle_heartbeat: int = 0
    group: str = ""
    min_pending: int = 0
    min_ack_pending: int = 0
    id: str = ""
    priority: int = 0


_pull_decoder = msgspec.json.Decoder(_PullRequest)
MAX_PULL_BYTES = 1024
MAX_MESSAGES_PER_PULL = 10_000
"""Maximum messages per request."""


def limit_pull(body: bytes) -> bytes:
    """Return a request for events, with limited duration and number of messages.

    Raises `RejectedError` for an invalid or too large request.
    """
    if not body or body.isdigit():
        most = str(MAX_MESSAGES_PER_PULL).encode()
        return body if (len(body), body) <= (len(most), most) else most
    try:
        pull = _pull_decoder.decode(body) if len(body) <= MAX_PULL_BYTES else None
    except JSON_ERRORS as error:
        raise RejectedError(f"not a request for messages: {error}") from error
    if pull is None:
        raise RejectedError(f"the request is larger than {MAX_PULL_BYTES} bytes", 413)
    if pull.expires <= _MAX_PULL_NS and pull.batch <= MAX_MESSAGES_PER_PULL:
        return body
    pull.expires, pull.batch = (
        min(pull.expires, _MAX_PULL_NS),
        min(pull.batch, MAX_MESSAGES_PER_PULL),
    )
    return msgspec.json.encode(pull)


_ACKNOWLEDGEMENTS = frozenset((b"", b"+ACK", b"+OK", b"-NAK", b"+WPI", b"+NXT", b"+TERM"))


def _limit_ack(body: bytes) -> bytes:
    """Return a JetStream acknowledgement; limit the request that `+NXT` may contain."""
    kind, _, rest = body.partition(b" ")
    if kind not in _ACKNOWLEDGEMENTS:
        raise RejectedError("not an acknowledgement")
    return b"+NXT " + limit_pull(rest) if kind == b"+NXT" and rest else body


def limit_body(pattern: str, subject: str, body: bytes) -> bytes:
    """Return the body to relay, with limits applied; raise `RejectedError`."""
    if pattern == PULL_SUBJECT:
        return limit_pull(body)
    if pattern == CREATE_CONSUMER_SUBJECT:
        return limit_consumer_creation(subject, body)
    return _limit_ack(body) if pattern == ACK_SUBJECTS else body
