"""Timers as they pass between store and service. No I/O."""

import msgspec

from services.workflow.nodes.reading import read
from services.workflow.nodes.simple_timer import UTC, SimpleTimerParameters, TimerSettings
from services.workflow.runs.records import Cause, Deployed


class Timer(msgspec.Struct, frozen=True, kw_only=True):
    """The timer of a flow that runs."""

    flow: Deployed
    anchor: int
    """When it was set, ms: intervals count from it."""
    due: int
    """When its next run is due, ms."""

    @property
    def settings(self) -> TimerSettings:
        """What it was set to."""
        return settings_of(self.flow)

    @property
    def entered(self) -> dict[str, object]:
        """What the flow is entered with (notes, section 6.3)."""
        zone = self.settings.timezone or UTC
        return {"executionEpochSecond": self.due // 1000, "timezone": zone}

    @property
    def cause(self) -> Cause:
        """A due time makes one run, however many replicas and attempts there are."""
        return Cause(kind="TIMER", key=f"t-{self.due}")


def settings_of(flow: Deployed) -> TimerSettings:
    """The settings of a flow that begins with a timer; they were checked."""
    return read(SimpleTimerParameters, flow.parameters).timer_settings
