"""Limits at the door: rates, which all replicas share, and what a process has in hand."""

from services.gateway.limits.limiter import RateLimiter

__all__ = ["RateLimiter"]
