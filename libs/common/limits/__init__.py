"""Limits: token buckets in Redis, which all replicas share, and the limits and use of tenants."""

from libs.common.limits.addresses import counted_address
from libs.common.limits.buckets import TokenBuckets

__all__ = ["TokenBuckets", "counted_address"]
