"""Errors about alarms."""

from libs.common.errors import InvalidInput, NotFound


def rule_not_found(rule_id: int) -> NotFound:
    """There is no such rule, or none that the user sees."""
    return NotFound(f"there is no alarm rule {rule_id}", field="rule_id")


def too_many_rules(limit: str, most: int) -> InvalidInput:
    """A device or a product has as many rules as `limit` permits."""
    text = f"{limit}: the device or the product has {most} alarm rules, which is its limit"
    return InvalidInput(text, field="device_id", code="alarm_rule_number_limitation")


def too_many_alarms(most: int) -> InvalidInput:
    """A device has as many open alarms of flows as it may."""
    text = f"a device has at most {most} open alarms of flows"
    return InvalidInput(text, field="key", code="alarm_number_limitation")
