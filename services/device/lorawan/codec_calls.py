"""Requests to codec processes, and their responses.

Only codec processes import QuickJS, because it starts a thread when it is imported. Services
import this file instead.
"""

import math
from typing import Any, Literal

import msgspec

from services.device.things.codec_model import Codec, CodecFailed


class CodecCall(msgspec.Struct, frozen=True, array_like=True):
    """A payload to decode, or values to encode."""

    kind: Literal["decode", "encode"]
    content: Any
    """Payload bytes, or the values."""
    port: int
    at: int
    """Time of the script's clock, ms: when the frame was received or the command was created."""


class RunRequest(msgspec.Struct, frozen=True, array_like=True, tag="run"):
    """Request to run calls of one codec."""

    version: str
    calls: list[CodecCall]
    codec: Codec | None = None
    """Sent only after the worker has answered that it lacks the codec."""
    seconds: float = math.inf
    """Maximum processor time of the batch, in seconds; calls after it are rejected."""
    logging: bool = False
    """Whether to return console output."""


class FunctionsRequest(msgspec.Struct, frozen=True, array_like=True, tag="read"):
    """Request for the functions that scripts have; the worker evaluates each script."""

    scripts: list[str]
    names: list[str]
    """Names of functions to look for in each script."""


class CallOutcome(msgspec.Struct, frozen=True, array_like=True):
    """Result of a call, or the function names of a script."""

    value: Any = None
    fault: str | None = None
    log: list[str] = []

    def result(self) -> Any:
        """Return the value; raise `CodecFailed` with the fault."""
        if self.fault is not None:
            raise CodecFailed(self.fault)
        return self.value


class BatchResult(msgspec.Struct, frozen=True, array_like=True):
    """Outcomes of a batch, and its processor time in seconds (wall time after a lost process)."""

    outcomes: list[CallOutcome]
    seconds: float = 0.0


WorkerRequest = RunRequest | FunctionsRequest
WorkerResponse = BatchResult | None
"""None when the codec is not loaded and must be sent."""
