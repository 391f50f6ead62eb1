"""A walk over devices, as the logic asks a store for it."""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from services.device.things.model import ModelKey

Condition = dict[str, Any]
"""A MongoDB condition on devices or things."""


@dataclass(frozen=True, slots=True)
class Walk:
    """Devices in order: those that meet all `conditions`, without the first `skip`."""

    conditions: list[Condition]
    order: list[tuple[str, int]]
    skip: int
    expected: int
    """How many will probably be read."""
    hint: str | None


def of_models(models: Collection[ModelKey]) -> Condition:
    """The condition that a device is of one of these models."""
    return {
        "$or": [
            {"model": model, "tslVersion": version}
            if version
            else {"model": model, "shape": shape or None}
            for model, version, shape in models
        ]
    }
