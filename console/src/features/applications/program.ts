/** A Python program, with nothing but what Python has, that reads the devices of an application. */
export function program(base: string, { client_id, client_secret }: { client_id: string; client_secret: string }): string {
  return `import base64, json
from urllib.parse import urlencode
from urllib.request import Request, urlopen

BASE = ${JSON.stringify(base)}
CLIENT = {"client_id": ${JSON.stringify(client_id)}, "client_secret": ${JSON.stringify(client_secret)}}
DEVICES = "/device/openapi/v1/devices"

def ask(path, body=None, login=None):
    headers = {"Authorization": login or f"Bearer {token}", "Content-Type": "application/json"}
    data = None if body is None else json.dumps(body).encode()
    return json.load(urlopen(Request(BASE + path, data, headers)))["data"]

form = urlencode({"grant_type": "client_credentials", **CLIENT}).encode()
token = json.load(urlopen(BASE + "/oauth/token", form))["data"]["access_token"]

def mine():
    return ask(DEVICES + "/search", {"pageSize": 10, "pageNumber": 1})["content"]

if not mine():  # an application sees the devices that it added: add one, and report for it
    added = ask(DEVICES, {"snDevEUI": ${JSON.stringify(`PY${client_id.slice(0, 8).toUpperCase()}`)}, "name": "Added by Python"})
    key = ask(f"{DEVICES}/{added['deviceId']}/credentials", {})
    login = "Basic " + base64.b64encode(f"{key['sn']}:{key['key']}".encode()).decode()
    ask(f"/ingest/v1/{key['sn']}/report?wait=stored", {"properties": {"temperature": 21.5}}, login)

for device in mine():
    print(device["name"], ask(f"{DEVICES}/{device['deviceId']}/properties/history?pageSize=3")["list"])
`;
}
