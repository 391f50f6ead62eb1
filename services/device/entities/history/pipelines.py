"""The pipelines of aggregates: every partition is folded by itself, then the folds are.

MongoDB adds doubles with a remainder, so that a sum of a million of them has all its digits.
"""

from typing import Any, Literal

from services.device.entities.history.sources import Scan, Source, Span

AggregateOf = Literal["MIN", "MAX", "TOTAL", "COUNT", "DISTINCT"]
"""`TOTAL` gives sum and number of values, of which both SUM and AVG are made."""

MOST_COUNTED = 10_000
"""Different values that a COUNT answers, the most frequent first."""

Stages = list[dict[str, Any]]


def pipeline_of(source: Source, span: Span, wanted: AggregateOf) -> tuple[str, Stages] | None:
    """The collection to run on, and the stages; None when there is nothing to read.

    MIN and MAX give `v`, TOTAL `v` and `n`, COUNT documents of `_id`, the value, and `n`;
    DISTINCT those of all values.
    """
    scans = source.scans(span)
    if not scans:
        return None
    first, *others = (_fold(scan, _value(source, wanted), wanted) for scan in scans)
    unions = [
        {"$unionWith": {"coll": scan.collection, "pipeline": stages}}
        for scan, stages in zip(scans[1:], others, strict=True)
    ]
    together = [_group_again(wanted)] if unions else []
    return scans[0].collection, [*first, *unions, *together, *_shortened(wanted)]


def _value(source: Source, wanted: AggregateOf) -> Any:
    """The value as it counts: the keys of an ENUM of numbers are stored as texts.

    A text that is no number, of a time when the TSL had another type, does not count.
    """
    field = f"${source.field}"
    member = source.entity.member
    if (
        wanted in ("COUNT", "DISTINCT")
        or member.value_type != "LONG"
        or "enum" not in member.attribute
    ):
        return field
    return {"$convert": {"input": field, "to": "long", "onError": None}}


def _fold(scan: Scan, value: Any, wanted: AggregateOf) -> Stages:
    group: dict[str, Any] = {"_id": None}
    match wanted:
        case "MIN" | "MAX":
            group["v"] = {f"${wanted.lower()}": value}
        case "TOTAL":
            group |= {"v": {"$sum": value}, "n": {"$sum": 1}}
        case "COUNT" | "DISTINCT":
            group |= {"_id": value, "n": {"$sum": 1}}
    return [{"$match": scan.match}, {"$group": group}]


def _group_again(wanted: AggregateOf) -> dict[str, Any]:
    group: dict[str, Any] = {"_id": "$_id"}
    if wanted in ("MIN", "MAX"):
        group["v"] = {f"${wanted.lower()}": "$v"}
    else:
        group["n"] = {"$sum": "$n"}
    if wanted == "TOTAL":
        group["v"] = {"$sum": "$v"}
    return {"$group": group}


def _shortened(wanted: AggregateOf) -> Stages:
    if wanted != "COUNT":
        return []
    return [{"$sort": {"n": -1, "_id": 1}}, {"$limit": MOST_COUNTED}]
