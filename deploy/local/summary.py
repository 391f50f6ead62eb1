"""What the user reads when everything serves."""

import textwrap
from pathlib import Path

from deploy.platform import console
from deploy.platform.ready import FILE_NAME
from deploy.platform.state import State


def summary(state: State, directory: Path) -> str:
    """Addresses, credentials, and two commands that show live data of the simulated device."""
    addresses, application, device = state.addresses, state.application, state.device
    user = state.user
    if addresses is None or application is None or device is None or user is None:
        raise AssertionError("a summary needs a completed start")
    base = addresses.base_url
    form = f"client_id={application.client_id}&client_secret={application.client_secret}"
    history = f"{base}/device/openapi/v1/devices/{device.device_id}/properties/history?pageSize=3"
    return textwrap.dedent(f"""
        Thingway is ready.

          API            {base}
          documentation  {base}/docs
          MQTT           {addresses.mqtt_url}
          NATS           {addresses.nats_url}
          application    {application.client_id}
          console user   {user.email}, first password {user.password}
          console client {console.client(state)[0]}
          device         {device.sn} (id {device.device_id})
          data and logs  {directory.resolve()}
          credentials    {(directory / FILE_NAME).resolve()}

        Live data of the simulated device:

        TOKEN=$(curl -s {base}/oauth/token -d grant_type=client_credentials -d '{form}' \
| sed 's/.*"access_token":"\\([^"]*\\)".*/\\1/')
        curl -s -H "Authorization: Bearer $TOKEN" '{history}'

        Ctrl-C ends everything.
        """)
