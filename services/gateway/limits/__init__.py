"""Rate limits: token buckets in Redis, shared by all replicas."""

from services.gateway.limits.limiter import RateLimiter

__all__ = ["RateLimiter"]
