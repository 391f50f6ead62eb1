"""Limits that all replicas share: token buckets in Redis."""

from libs.common.limits.addresses import counted_address
from libs.common.limits.buckets import TokenBuckets

__all__ = ["TokenBuckets", "counted_address"]
