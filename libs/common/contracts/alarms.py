"""Alarms of flows, between `workflow`, which runs them, and `device`, which keeps alarms."""

from typing import Literal

import msgspec

CHANGE = "rpc.device.change_alarm"

Severity = Literal["CRITICAL", "MAJOR", "MINOR", "WARNING", "INFO"]
LONGEST_KEY, LONGEST_CONTENT = 128, 255
"""Characters."""


class ChangeAlarm(msgspec.Struct, rename="camel", omit_defaults=True, kw_only=True):
    """`change_alarm`: a flow raises or clears the alarm of a device that it calls `key`."""

    tenant: str
    flow_id: int | None
    """None: a test of a flow that is not saved."""
    step: str
    """Which node of which run it is: a second question of the same step changes nothing."""
    entity: str
    """Key of an entity of the device."""
    key: str
    raised: bool
    """False: it is over."""
    severity: Severity = "MAJOR"
    content: str = ""
    hops: int = 0
    """Of what the alarm leads to (`libs.common.bus.hops`)."""
    dry_run: bool = False
    """Judge it and change nothing."""


class ChangedAlarm(msgspec.Struct, rename="camel", omit_defaults=True):
    """Answer of `change_alarm`."""

    alarm_id: int | None = None
    """The alarm that is open, or that was cleared; None where there is none."""
    changed: bool = False
    """Whether this step raised or cleared it."""
