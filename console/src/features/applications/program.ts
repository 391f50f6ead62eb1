/** The placeholder for a secret that the console does not know. */
export const PLACEHOLDER = "YOUR_CLIENT_SECRET";

/** A Python program, with nothing but what Python has, that reads the devices of an application. */
export function program(base: string, { client_id, client_secret = PLACEHOLDER }: { client_id: string; client_secret?: string }): string {
  return `import json
from urllib.parse import urlencode
from urllib.request import Request, urlopen

BASE = ${JSON.stringify(base)}
CLIENT = {"client_id": ${JSON.stringify(client_id)}, "client_secret": ${JSON.stringify(client_secret)}}
DEVICES = "/device/openapi/v1/devices"

form = urlencode({"grant_type": "client_credentials", **CLIENT}).encode()
token = json.load(urlopen(BASE + "/oauth/token", form))["data"]["access_token"]

def ask(path, body=None):
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    data = None if body is None else json.dumps(body).encode()
    return json.load(urlopen(Request(BASE + path, data, headers)))["data"]

devices = ask(DEVICES + "/search", {"pageSize": 10, "pageNumber": 1})["content"]
if not devices:
    print("The application has no devices. Assign one to it in the console.")
for device in devices:
    print(device["name"], ask(f"{DEVICES}/{device['deviceId']}/properties/history?pageSize=3")["list"])
`;
}
