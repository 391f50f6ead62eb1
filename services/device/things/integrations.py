"""What devices and entities need to know of integrations."""

from collections.abc import Mapping
from typing import Protocol

import msgspec

from libs.common.things import DIRECT, SYSTEM


class Integration(msgspec.Struct, frozen=True):
    """An integration, as answers show it."""

    name: str
    deletable: bool = True
    """Whether its devices can be deleted."""


class Integrations(Protocol):
    """Knows the integrations that there are."""

    async def known(self) -> Mapping[str, Integration]:
        """The integrations by id; devices of one that is missing can be deleted."""


class BuiltIn:
    """The integrations that are always there: all that is known while `management` is silent."""

    async def known(self) -> Mapping[str, Integration]:
        """Give the same every time."""
        return _BUILT_IN


_BUILT_IN = {DIRECT: Integration("Direct connection"), SYSTEM: Integration("System")}
