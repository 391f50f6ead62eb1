// A new user signs in with the link, signs in again, finds a device, sees live values, and signs out.
import { journey, typeInto } from "./page.mjs";

await journey(async ({ page, given, look, problems }) => {
  const { baseUrl, email, first, password, device } = given;
  const link = `${baseUrl}/#/welcome?${new URLSearchParams({ email, password: first })}`;
  await page.goto(link);
  await page.getByLabel("New password").waitFor();
  await page.waitForURL(/#\/welcome$/);
  await page.reload(); // signed in, but has not chosen a password yet
  await page.getByRole("heading", { name: "Overview" }).waitFor();
  await page.goto("about:blank");
  await page.goto(link);
  await typeInto(page.getByLabel("New password"), password);
  await look("welcome");
  await page.getByRole("button", { name: "Set password" }).click();
  await page.getByRole("heading", { name: "Overview" }).waitFor();
  await page.getByRole("button", { name: "Sign out" }).click();
  await page.goto("about:blank");
  await page.goto(link);
  const used = await page.getByRole("alert").textContent();

  await page.getByRole("link", { name: "Sign in" }).click();
  await typeInto(page.getByLabel("Email address"), email);
  await typeInto(page.getByLabel("Password"), "Not it 1");
  await page.getByRole("button", { name: "Sign in" }).click();
  const refusal = await page.getByRole("alert").textContent();
  problems.length = 0; // the browser logs every 401
  await typeInto(page.getByLabel("Password"), password);
  await look("sign-in");
  await page.getByRole("button", { name: "Sign in" }).click();
  await page.getByRole("heading", { name: "Overview" }).waitFor();
  await look("start");

  let muted = false;
  await page.routeWebSocket(/websocket/, (socket) => {
    const server = socket.connectToServer();
    socket.onMessage((message) => muted || server.send(message));
    server.onMessage((message) => muted || socket.send(message));
  });
  await page.getByRole("link", { name: "Devices", exact: true }).click();
  await typeInto(page.getByRole("searchbox"), device.name);
  await page.waitForFunction((name) => location.hash.includes(encodeURIComponent(name).replaceAll("%20", "+")), device.name);
  await page.reload(); // the session and the search are kept
  const row = page.getByRole("link", { name: device.name });
  await row.waitFor();
  await look("devices");
  await row.click();
  const card = page.locator(`[data-key$=".${device.property}"] strong`);
  await page.getByText("Live", { exact: true }).waitFor();
  await page.waitForFunction((it) => it.textContent !== "–", await card.elementHandle());
  const before = await card.textContent();
  await page.waitForFunction(
    ([it, before]) => it.textContent !== before,
    [await card.elementHandle(), before],
  );
  const after = await card.textContent();

  // The network fails, and the page shows it immediately. Later the network works but no data arrives.
  const live = page.getByText("Live", { exact: true });
  await page.context().setOffline(true);
  await page.getByText("You are offline", { exact: true }).waitFor();
  await page.getByText("Values on this page may be out of date").waitFor();
  await page.getByRole("link", { name: "Flows" }).click();
  await page.getByText("This page opens as soon as the platform answers.").waitFor();
  await page.context().setOffline(false);
  await page.getByRole("heading", { name: "Flows" }).waitFor();
  await page.goBack();
  await live.waitFor();
  await page.getByText("Values on this page may be out of date").waitFor({ state: "detached" });
  muted = true;
  await page.getByText("Disconnected, reconnecting").waitFor();
  muted = false;
  await live.waitFor();
  problems.splice(0, Infinity, ...problems.filter((one) => !/ERR_(INTERNET|NETWORK|CONNECTION)|WebSocket/.test(one))); // the browser logs them

  // A status that is older than the values is not shown next to them, for example after a restart.
  await page.route(/\/device\/\d+$/, async (route) => {
    const answer = await route.fetch();
    const json = await answer.json();
    Object.assign(json.data, { status: "OFFLINE", status_updated_at: 1, last_reported_at: 1 });
    await route.fulfill({ response: answer, json });
  });
  await page.reload();
  await page.locator("main .head").getByText("Online", { exact: true }).waitFor();
  await page.getByText("may be switched off").waitFor({ state: "detached" });
  await page.unrouteAll({ behavior: "ignoreErrors" });
  await page.getByRole("tab", { name: "History" }).click();
  await page.locator(".uplot").waitFor();

  await page.getByRole("button", { name: "Sign out" }).click();
  await page.getByLabel("Password").waitFor();
  await page.reload();
  await page.getByLabel("Password").waitFor();
  return { used, refusal, before, after };
});
