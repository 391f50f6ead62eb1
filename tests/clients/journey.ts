// The journey of tests/contract/test_clients.py with the generated TypeScript client in the same directory.
import { createClient } from "./api/client/index.ts";
import * as api from "./api/sdk.gen.ts";

declare const process: { argv: string[] };

const given = JSON.parse(process.argv[2]!) as Record<string, string>;
const baseUrl = given.baseUrl!;
const open = createClient({ baseUrl, throwOnError: true });

async function deviceJourney(): Promise<unknown> {
  const token = await api.issueToken({
    client: open,
    body: {
      grant_type: "client_credentials",
      client_id: given.clientId!,
      client_secret: given.clientSecret!,
    },
    throwOnError: true,
  });
  const client = createClient({ baseUrl, auth: token.data.data!.access_token });
  const throwOnError = true;
  const added = await api.addDevice({
    client,
    body: { snDevEUI: given.sn!, name: "Generated" },
    throwOnError,
  });
  const path = { device_id: added.data.data!.deviceId };
  const issued = await api.issueCredentials({ client, path, throwOnError });
  const edge = createClient({ baseUrl, auth: `${given.sn}:${issued.data.data!.key}` });
  await api.reportProperties({
    client: edge,
    path: { sn: given.sn! },
    query: { wait: "stored" },
    body: { properties: { temperature: 21.5 } },
    throwOnError,
  });
  const history = await api.getPropertyHistory({ client, path, query: { pageSize: 5 }, throwOnError });
  const told = await api.updateDeviceProperties({
    client,
    path,
    body: { properties: { led: true } },
    throwOnError,
  });
  const task_id = Number(told.response!.headers.get("Location")!.split("/").pop());
  await api.answerCommand({
    client: edge,
    path: { sn: given.sn! },
    query: { wait: "stored" },
    body: { commandId: task_id, status: "SUCCESS" },
    throwOnError,
  });
  const task = await api.getTask({ client, path: { task_id }, throwOnError });
  const refused = await api.getDevice({ client, path: { device_id: 1 } });
  await api.deleteDevice({ client, path, throwOnError });
  return {
    values: history.data.data!.list.map((record) => record.properties),
    status: task.data.data!.status,
    refusal: refused.error && "errCode" in refused.error ? refused.error.errCode : null,
  };
}

async function consoleJourney(): Promise<unknown> {
  const throwOnError = true;
  const tokens = await api.signIn({
    client: open,
    body: {
      grant_type: "password",
      username: given.email!,
      password: given.password!,
      client_id: given.consoleId!,
      client_secret: given.consoleSecret!,
    },
    throwOnError,
  });
  const client = createClient({ baseUrl, auth: tokens.data.access_token });
  const made = await api.createDashboard({ client, body: { name: given.sn! }, throwOnError });
  const path = { dashboard_id: Number(made.data.data!.dashboard_id) };
  const listed = await api.listDashboards({ client, throwOnError });
  await api.deleteDashboard({ client, path, throwOnError });
  return listed.data.data!.some((dashboard) => dashboard.name === given.sn);
}

console.log(JSON.stringify({ device: await deviceJourney(), console: await consoleJourney() }));
