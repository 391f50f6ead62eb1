"""`system`, hidden: custom entities and the services of flows live on it."""

from libs.common.contracts.integrations import Manifest
from libs.common.integrations import Integration
from libs.common.things import SYSTEM


class System(Integration):
    """Has no devices; what is called on it is answered by its owners, not here."""

    manifest = Manifest(
        id=SYSTEM,
        name="System",
        description="Custom entities and flows",
        icon="/public/system.svg",
        hidden=True,
    )
