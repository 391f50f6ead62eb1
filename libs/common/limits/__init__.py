"""Limits: token buckets in Redis, which all replicas share, and the limits and use of tenants."""

from libs.common.limits.buckets import TokenBuckets, counted_address

__all__ = ["TokenBuckets", "counted_address"]
