"""Reads `param_entities`: inputs of an integration's add service, by entity key. No I/O."""

from collections.abc import Mapping
from typing import Any

from libs.common.contracts.integrations import Manifest
from libs.common.errors import InvalidInput
from libs.common.things import integration_key, member_key
from libs.common.tsl import InvalidValues, TslDocument, compile_tsl
from services.device.members.members import Member, MemberSet, marks_of, members_of
from services.device.members.values import put, read_value, refusal, said_of, value_faults

FIELD = "param_entities"


class Parameters:
    """The inputs of the service by which an integration adds devices."""

    def __init__(self, manifest: Manifest, document: TslDocument, service: str) -> None:
        self._document = document
        self._service = service
        self._thing = integration_key(manifest.id)
        numbers = {mark: at for at, mark in enumerate(marks_of(document), 1)}
        self._members = members = members_of(document, numbers)
        self._owner = next(
            member
            for member in members.members
            if member.type == "SERVICE" and member.path.removesuffix("@service") == service
        )
        self._inputs = _inputs(members, self._owner)

    def key(self, name: str) -> str:
        """`param_entities.{key}` of an input."""
        return f"{FIELD}.{self.key_of(name)}"

    def key_of(self, name: str) -> str:
        """The entity key of an input."""
        return f"{member_key(self._thing, self._owner.path)}.{name}"

    def inputs(self) -> list[tuple[str, str, Member]]:
        """Name, entity key and member of each input."""
        return [
            (name, member_key(self._thing, member.path), member)
            for name, member in self._inputs.items()
        ]

    def has(self, name: str) -> bool:
        """Whether there is such an input."""
        return name in self._inputs

    def refused(self, name: str, text: str, code: str = "") -> InvalidInput:
        """400 for an input that its TSL takes and that cannot be used for another reason."""
        return refusal(FIELD, [said_of(self.key_of(name), self._inputs[name], code, text)])

    def read(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """The inputs by their names; raise `InvalidInput` that names the key at fault.

        The key of the service itself may come along; blanks of optional inputs do not count.
        """
        names = {key: name for name, key, _ in self.inputs()}
        own = member_key(self._thing, self._owner.path)
        values: dict[str, Any] = {}
        for key, value in given.items():
            name = names.get(key)
            if name is None:
                if key == own:
                    continue
                raise InvalidInput("is no parameter of it", field=f"{FIELD}.{key[:512]}")
            member = self._inputs[name]
            if value not in ("", None) or not member.attribute.get("optional"):
                put(values, name.split("."), read_value(member.value_type, value))
        try:
            return compile_tsl(self._document).check_service_inputs(self._service, values)
        except InvalidValues as error:
            faults = value_faults(self._thing, self._members, self._owner.path, error.faults)
            raise refusal(FIELD, faults) from error


def _inputs(members: MemberSet, owner: Member) -> dict[str, Member]:
    return {one.path.removeprefix(f"{owner.path}."): one for one in members.children(owner.path)}
