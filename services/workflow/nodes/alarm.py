"""`alarm`: raises or clears an alarm of a device."""

from collections.abc import Iterable
from typing import Annotated, Any, Literal

from libs.common.contracts.flows import LONGEST_CONTENT, LONGEST_KEY, ChangeAlarm, Severity
from services.workflow.entities import WILDCARD
from services.workflow.nodes.base import EntityStep, NodeContext, SampleOutput
from services.workflow.nodes.parameters import EntityKey, ParameterFault, Parameters, parameter_meta

_REFERENCE_START = "#{"


class AlarmParameters(Parameters):
    """The alarm to raise or clear."""

    entity: Annotated[
        EntityKey,
        parameter_meta("Device", "Key of an entity of the alarm's device", ui="entitySelect"),
    ]
    key: Annotated[
        str,
        parameter_meta(
            "Key",
            "Identifies the alarm: a device has at most one open alarm per key",
            min_length=1,
            max_length=LONGEST_KEY,
        ),
    ]
    action: Annotated[Literal["RAISE", "CLEAR"], parameter_meta("Action")] = "RAISE"
    """`RAISE` opens the alarm unless it is open. `CLEAR` clears it if it is open."""
    severity: Annotated[Severity, parameter_meta("Severity")] = "MAJOR"
    """Severity of an alarm that is raised."""
    content: Annotated[
        str, parameter_meta("Content", "Text of the alarm for users", max_length=LONGEST_CONTENT)
    ] = ""
    """Required for `RAISE`."""

    def find_faults(self) -> Iterable[ParameterFault]:
        """Yield a fault if an alarm is raised without content."""
        if self.action == "RAISE" and not self.content.strip():
            yield ParameterFault("content", "must not be empty; describe the problem")

    def list_entity_keys(self) -> Iterable[str]:
        """Yield the entity key, or `*` if it has a reference, which may name any entity."""
        yield WILDCARD if _REFERENCE_START in self.entity else self.entity


class AlarmNode(EntityStep[AlarmParameters]):
    """Raises an alarm unless it is open, or clears it if it is open.

    A restarted run does not repeat the change. The output has `alarmId` of the open or cleared
    alarm, if any, and `changed`.
    """

    name = "alarm"
    title = "Alarm"
    description = "Raises or clears an alarm of a device"
    repeatable = True

    async def run(
        self, context: NodeContext, parameters: AlarmParameters, body: Any
    ) -> dict[str, Any] | SampleOutput:
        """Change the alarm; a dry run validates known values and returns a sample."""
        fields = {name: getattr(parameters, name) for name in ("entity", "key", "content")}
        sample = SampleOutput({"alarmId": "0", "changed": True})
        if context.find_names_with_samples(fields):
            return sample
        raising = parameters.action == "RAISE"
        answer = await self._entities.change_alarm(
            ChangeAlarm(
                tenant=context.tenant,
                flow_id=context.flow_id,
                step=f"{context.run_id}.{context.node_id}",
                entity=context.resolve_text(parameters.entity),
                key=context.resolve_text(parameters.key)[:LONGEST_KEY],
                raised=raising,
                severity=parameters.severity,
                content=context.resolve_text(parameters.content)[:LONGEST_CONTENT],
                hops=context.hops + 1,
                dry_run=context.dry_run,
            ),
            context.seconds_left,
        )
        if context.dry_run:
            return sample
        output = {"alarmId": answer.alarm_id and str(answer.alarm_id), "changed": answer.changed}
        return {name: value for name, value in output.items() if value is not None}
