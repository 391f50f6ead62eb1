"""Is a running platform well? What can be seen with the settings of its services."""

from deploy.checkup.findings import Finding
from deploy.checkup.platform import addresses_of, examine

__all__ = ["Finding", "addresses_of", "examine"]
