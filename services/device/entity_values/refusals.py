"""What a TSL refuses of an exchange, said of the entities at fault."""

from collections.abc import Iterable

from libs.common.errors import InvalidInput
from libs.common.tsl import Fault
from services.device.entities.things import EntityThing
from services.device.entity_values.checking import ValueFault, fault, refuse

_NULL = ("is required", "must not be null")


def refused(thing: EntityThing, above: str, faults: Iterable[Fault]) -> InvalidInput:
    """400: the faults of a thing's TSL; `above` is the path that theirs begin below.

    What is checked here has passed the checks of its entity, so these are few: members that
    a STRUCT lacks, elements of an ARRAY.
    """
    listed = [_of(thing, above, one) for one in faults]
    return refuse(listed, f"exchange.{listed[0].args['entity_key']}")


def refused_by_integration(thing: EntityThing, error: InvalidInput) -> InvalidInput:
    """The same 400; the text of an integration may begin with the property at fault."""
    name = error.message.partition(":")[0]
    field = f"exchange.{thing.key}.{name}" if name in thing.members.by_path else "exchange"
    return InvalidInput(error.message, field=field, code=error.code)


def _of(thing: EntityThing, above: str, one: Fault) -> ValueFault:
    _, _, inner = one.path.partition(".")
    path = ".".join(filter(None, (above, inner)))
    names = path.split(".")
    for end in range(len(names), 0, -1):
        member = thing.members.by_path.get(".".join(names[:end]))
        if member is not None:
            code = "null" if one.reason in _NULL else "not_match_type"
            return fault(f"{thing.key}.{path}", member, code, one.reason)
    about = {"entity_key": f"{thing.key}.{path}"}
    return ValueFault("entity_value_not_match_type", one.reason, about)


def faults_of(error: InvalidInput) -> list[Fault]:
    """The faults that an error of `InvalidInput.of_faults` was made of."""
    return [Fault(entry["field"], entry["reason"]) for entry in error.detail or ()]
