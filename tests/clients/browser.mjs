// node browser.mjs ORIGIN GIVEN: checks in a real browser what a page of ORIGIN may do on the platform.
import { createServer } from "node:http";

import packed from "@sparticuz/chromium";
import { chromium } from "playwright-core";

const [, , origin, text] = process.argv;
const server = createServer((_, answer) => {
  answer.writeHead(200, { "Content-Type": "text/html" }).end("<!doctype html><title>A page</title>");
});
await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
const browser = await chromium.launch({
  executablePath: await packed.executablePath(),
  args: [
    ...packed.args.filter((word) => word !== "--disable-web-security"),
    `--host-resolver-rules=MAP ${new URL(origin).host} 127.0.0.1:${server.address().port}`,
  ],
  headless: true,
});
try {
  const page = await browser.newPage();
  await page.goto(`${origin}/`);
  console.log(JSON.stringify(await page.evaluate(journey, JSON.parse(text))));
} finally {
  await browser.close();
  server.close();
}

/** Sign in, read and command; runs in the page. */
async function journey(given) {
  const call = async (method, path, token, body) => {
    try {
      const form = body instanceof URLSearchParams;
      const answer = await fetch(given.baseUrl + path, {
        method,
        headers: {
          ...(token && { Authorization: `Bearer ${token}` }),
          ...(!form && { "Content-Type": "application/json" }),
        },
        body: form ? body : JSON.stringify(body),
      });
      const { data, errCode } = await answer.json();
      return { status: answer.status, data, errCode, task: answer.headers.get("Location") };
    } catch (error) {
      return { status: error.name };
    }
  };
  const signedIn = await call(
    "POST",
    "/oauth/token",
    null,
    new URLSearchParams({
      grant_type: "client_credentials",
      client_id: given.clientId,
      client_secret: given.clientSecret,
    }),
  );
  const token = signedIn.data?.access_token ?? given.token;
  const devices = "/device/openapi/v1/devices";
  const search = { sn: given.sn, pageSize: 1, pageNumber: 1 };
  const read = await call("POST", `${devices}/search`, token, search);
  const led = { properties: { led: true } };
  const told = await call("PATCH", `${devices}/${given.deviceId}/properties`, token, led);
  const refused = await call("POST", `${devices}/search`, "nobody", search);
  return {
    signIn: signedIn.status,
    read: read.data?.content[0].sn ?? read.status,
    command: told.status,
    task: told.task ?? null,
    refusal: refused.errCode ?? refused.status,
  };
}
