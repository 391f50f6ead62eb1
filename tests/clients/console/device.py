"""A device for journeys: `python device.py HOST PORT SN KEY`; it confirms whatever it is asked.

Each line of its input is a report that it publishes; it writes `ready` once it listens.
"""

import json
import sys
from typing import Any

import paho.mqtt.client as mqtt

host, port, sn, key = sys.argv[1:]


def listen(client: mqtt.Client, *_: Any) -> None:
    """Hear commands."""
    client.subscribe(f"thing/{sn}/down/command", qos=1)


def confirm(client: mqtt.Client, _: Any, message: mqtt.MQTTMessage) -> None:
    """Answer that a command is done."""
    reply = {"commandId": json.loads(message.payload)["commandId"], "status": "SUCCESS"}
    client.publish(f"thing/{sn}/up/reply", json.dumps(reply), qos=1)


device = mqtt.Client(mqtt.CallbackAPIVersion.VERSION2, client_id=sn)
device.username_pw_set(sn, key)
device.on_connect = listen
device.on_message = confirm
device.on_subscribe = lambda *_: sys.stdout.write("ready\n") and sys.stdout.flush()
device.connect(host, int(port))
device.loop_start()
for line in sys.stdin:
    device.publish(f"thing/{sn}/up/report", line, qos=1).wait_for_publish(10)
device.loop_stop()
