"""Whose runs and code wait for their turn."""

from typing import NamedTuple


class Owner(NamedTuple):
    """The tenant, and its flow: a lane and a sub-lane of `libs.common.scheduling`."""

    tenant: str
    flow_id: int
    """0 is a design that is tested."""
