"""What `openapi-client` announces."""

from libs.common.contracts.integrations import Manifest
from services.management.builtin.tsl import document, own_property, service, text_input

SHORTEST, LONGEST = 30, 86_400
"""Seconds between two scheduled syncs."""
SECRET = "client_secret"  # noqa: S105 - the name of a property
RUNNING, DONE, FAILED = "running", "done", "failed"
"""What becomes of a sync; existing consoles find no label for keys in capitals."""

MANIFEST = Manifest(
    id="openapi-client",
    name="Open API client",
    description="Devices of another platform that speaks the device open API",
    icon="/public/openapi-client.svg",
    tsl=document(
        service(
            "add_device",
            "Add device",
            text_input(
                "add_device",
                "device",
                "Device",
                "SN or device ID at the other platform",
                validator={"minSize": 1, "maxSize": 64, "required": True},
            ),
        ),
        service("delete_device", "Delete device"),
        service("sync", "Sync", description="Bring devices, TSLs and history since the last sync"),
        properties=[
            own_property(
                "base_url",
                "Base URL",
                "RW",
                "Address of the other platform",
                dataType="STRING",
                validator={"maxSize": 1024},
            ),
            own_property(
                "client_id",
                "Client ID",
                "RW",
                "Of an application there",
                dataType="STRING",
                validator={"maxSize": 128},
            ),
            own_property(
                SECRET,
                "Client secret",
                "W",
                "Its secret, which is never shown; empty leaves it as it is; it is given anew with "
                "another base URL or client ID",
                dataType="STRING",
                validator={"maxSize": 255},
            ),
            own_property("scheduled", "Scheduled sync", "RW", "Sync by itself", dataType="STRUCT"),
            own_property(
                "scheduled.enabled",
                "Enabled",
                "RW",
                "Whether it does",
                dataType="BOOL",
                parentId="scheduled",
            ),
            own_property(
                "scheduled.period",
                "Period",
                "RW",
                "Time between two syncs",
                dataType="INT",
                parentId="scheduled",
                unitName="s",
                validator={"min": SHORTEST, "max": LONGEST},
            ),
            own_property(
                "sync_status",
                "Sync status",
                "R",
                "What became of the last sync",
                dataType="ENUM",
                mapping={RUNNING: "Running", DONE: "Done", FAILED: "Failed"},
            ),
            own_property("last_sync", "Last sync", "R", "When it ended, UTC", dataType="STRING"),
            own_property("last_error", "Last error", "R", "What was wrong", dataType="STRING"),
            own_property("synced_devices", "Devices", "R", "Devices of the sync", dataType="INT"),
            own_property("synced_reports", "Reports", "R", "Reports of the sync", dataType="INT"),
        ],
    ),
    add_device_service="add_device",
    delete_device_service="delete_device",
    carries_commands=True,
)
