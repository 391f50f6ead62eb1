"""Is a running platform well? What can be seen with the settings of its services."""

from deploy.checkup.findings import Finding

__all__ = ["Finding"]
