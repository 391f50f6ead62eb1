"""What the user reads when everything serves."""

import textwrap
from pathlib import Path
from urllib.parse import urlencode, urlsplit

from deploy.platform import console
from deploy.platform.ready import FILE_NAME
from deploy.platform.state import Addresses, Application, Device, State, User


def summary(state: State, directory: Path) -> str:
    """Addresses, credentials, commands that show live data, and how to trust certificates."""
    addresses, application, device = state.addresses, state.application, state.device
    user = state.user
    if addresses is None or application is None or device is None or user is None:
        raise AssertionError("a summary needs a completed start")
    shown = {
        "console": _welcome(addresses, user),
        "API": addresses.base_url,
        "documentation": f"{addresses.base_url}/docs",
        "MQTT": addresses.mqtt_url,
        "over WebSocket": addresses.websocket_url,
        "by certificate": f"{addresses.certificate_url} {addresses.certificate_nats_url}".strip(),
        "NATS": addresses.nats_url,
        "authority": addresses.ca_file,
        "application": application.client_id,
        "console user": f"{user.email}, first password {user.password}",
        "console client": console.client(state)[0],
        "device": f"{device.sn} (id {device.device_id})",
        "data and logs": str(directory.resolve()),
        "credentials": str((directory / FILE_NAME).resolve()),
    }
    lines = "".join(f"  {name:<14} {value}\n" for name, value in shown.items() if value)
    trust = _trust(addresses, device) if addresses.ca_file else ""
    return (
        f"\nThingway is ready.\n\n{lines}{trust}\n{_live(addresses, application, device)}"
        "\nCtrl-C ends everything.\n"
    )


def _welcome(addresses: Addresses, user: User) -> str:
    """A link that signs the first user in until a password was chosen; no server sees it whole."""
    login = urlencode({"email": user.email, "password": user.password})
    return f"{addresses.base_url}/#/welcome?{login}"


def _live(addresses: Addresses, application: Application, device: Device) -> str:
    base = addresses.base_url
    curl = f"curl -s --cacert {addresses.ca_file}" if addresses.ca_file else "curl -s"
    form = f"client_id={application.client_id}&client_secret={application.client_secret}"
    history = f"{base}/device/openapi/v1/devices/{device.device_id}/properties/history?pageSize=3"
    return textwrap.dedent(f"""\
        Live data of the simulated device:

        TOKEN=$({curl} {base}/oauth/token -d grant_type=client_credentials -d '{form}' \
| sed 's/.*"access_token":"\\([^"]*\\)".*/\\1/')
        {curl} -H "Authorization: Bearer $TOKEN" '{history}'
        """)


def _trust(addresses: Addresses, device: Device) -> str:
    """How clients come to trust the authority; the keys of devices are in `ready.json`."""
    mqtt, file = urlsplit(addresses.mqtt_url.split(",")[0]), addresses.ca_file
    return textwrap.dedent(f"""
        Everything speaks TLS, proved by an authority of this installation's own:

        curl --cacert {file} {addresses.base_url}/readyz
        mosquitto_sub --cafile {file} -h {mqtt.hostname} -p {mqtt.port} \
-i {device.sn} -u {device.sn} -P KEY -t 'thing/{device.sn}/down/#'
        A browser: import the file as an authority for web sites. SSL_CERT_FILE={file}
        does it for Python and other programs that use OpenSSL.
        """)
