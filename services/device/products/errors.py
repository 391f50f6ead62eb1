"""Why an operation on a product is refused."""

from libs.common.errors import Conflict, NotFound


def product_not_found(model: str) -> NotFound:
    """404: the tenant has no such product."""
    return NotFound(f"there is no product {model}", field="model", code="product_not_found")


def codec_not_found(model: str) -> NotFound:
    """404: the product has no codec."""
    return NotFound(f"the product {model} has no codec", field="model", code="codec_not_found")


def built_in(model: str) -> Conflict:
    """409: the product belongs to the platform."""
    return Conflict(
        f"the product {model} is built in and cannot be changed",
        field="model",
        code="product_built_in",
    )


def product_in_use(model: str) -> Conflict:
    """409: devices are of this product."""
    return Conflict(f"the product {model} still has devices", field="model", code="product_in_use")


def version_in_use(model: str, version: str) -> Conflict:
    """409: devices follow this very version, so its content stays."""
    return Conflict(
        f"tsl.version: devices use version {version} of {model}; "
        "give the changed TSL another version",
        field="tsl.version",
        code="tsl_version_in_use",
    )


def prefix_taken(prefix: str, model: str) -> Conflict:
    """409: another product answers to this prefix."""
    return Conflict(
        f"snPrefixes: {prefix} belongs to the product {model}",
        field="snPrefixes",
        code="sn_prefix_taken",
    )


def too_many_versions(model: str, most: int) -> Conflict:
    """409: a product keeps its versions until it is deleted."""
    return Conflict(
        f"tsl.version: {model} has {most} versions, which is the most",
        field="tsl.version",
        code="too_many_tsl_versions",
    )
