// Reads, in Chinese, texts that the platform sends in English: entities of an integration, states of services and
// fields of the audit log. What a page without data says fits the page and its filters.
// Sizes have readable units. Searches find Chinese names, and values of the audit log are names.
import { journey, typeInto } from "./page.mjs";

await journey(async ({ page, given, look, signIn }) => {
  await signIn();
  await page.evaluate(() => localStorage.setItem("thingway.language", "zh"));
  await page.goto(`${given.baseUrl}/#/entities?name=已接受&key=chirpstack`);
  await page.reload();
  const entity = page.getByRole("link", { name: "已接受上行数" });
  await entity.waitFor();
  const source = await page.getByRole("row").filter({ has: entity }).getByRole("cell").nth(2).innerText();
  await entity.click();
  await page.getByRole("heading", { name: "已接受上行数", level: 1 }).waitFor();
  const empty = await page.locator("main section").filter({ hasText: "时间范围" }).last().innerText();
  await look("entity-chinese");
  await page.keyboard.press("ControlOrMeta+k");
  await typeInto(page.getByRole("dialog").getByRole("combobox"), "已接受上行");
  const found = await page.getByRole("option", { name: "已接受上行数" }).first().innerText();
  await page.keyboard.press("Escape");

  await page.route("**/readyz", (route) => route.fulfill({ json: { auth: "not ready", redis: "ok" } }));
  await page.goto(`${given.baseUrl}/#/system`);
  const notice = await page.locator("main .notice.bad").first().innerText();
  const size = await page.getByRole("row", { name: "上传图片的总大小" }).getByRole("cell").nth(2).innerText();
  await look("system-chinese");
  await page.goto(`${given.baseUrl}/#/audit?keyword=平台运维人员`);
  const actor = await page.getByRole("row").nth(1).getByRole("cell").nth(1).innerText();
  await page.goto(`${given.baseUrl}/#/audit?object_type=user&action=created`);
  await page.getByRole("row", { name: "创建 用户" }).first().getByRole("button").click();
  const rows = page.getByRole("dialog").getByRole("row");
  await rows.last().waitFor();
  const fields = await rows.locator("td:first-child").allInnerTexts();
  await page.goto(`${given.baseUrl}/#/people/roles/${given.role}?tab=grants&kind=INTEGRATION`);
  await typeInto(page.getByRole("combobox", { name: "在集成中查找" }), "模拟");
  await page.getByRole("option", { name: "模拟器" }).click();
  await page.getByRole("button", { name: "授权", exact: true }).click();
  await page.getByText("已授权").waitFor();
  const values = [];
  for (const [action, name] of Object.entries({ menus_set: "设置权限", resources_added: "添加授权", members_added: "添加用户" })) {
    await page.goto(`${given.baseUrl}/#/audit?object_type=role&action=${action}`);
    await page.getByRole("row", { name }).first().getByRole("button").click();
    values.push(await rows.last().getByRole("cell").last().innerText());
    await page.keyboard.press("Escape");
  }
  await look("audit-chinese");
  await page.goto(`${given.baseUrl}/#/devices/${given.device}?tab=refusals&reason=必须是数字`);
  const refusal = await page.locator("main article").first().innerText();
  await page.goto(`${given.baseUrl}/#/devices/${given.device}?tab=refusals&reason=不能为空`);
  await page.getByText("没有符合条件的被拒绝消息").waitFor();
  await page.goto(`${given.baseUrl}/#/devices?application=${given.application}`);
  await page.getByRole("button", { name: `应用 ${given.reader} ×` }).waitFor();
  await page.goto(`${given.baseUrl}/#/events?keyword=no-such-entity`);
  await page.getByText("尚无符合筛选条件的变化").waitFor();
  const credentials = await addCredentials();
  return { source, found, empty, notice, size, actor, fields, values, refusal, credentials };

  /** What the form sends for a mail server and for an HTTP client whose access key the user leaves as it is. */
  async function addCredentials() {
    const sent = [];
    await page.route("**/credentials", (route) => {
      if (route.request().method() !== "POST") return route.fallback();
      sent.push(route.request().postDataJSON().access_key);
      return route.fulfill({ json: { status: "Success", request_id: "0" } });
    });
    for (const type of ["SMTP", "HTTP"]) {
      await page.goto(`${given.baseUrl}/#/credentials`);
      await page.reload();
      await page.getByRole("button", { name: "添加凭证" }).click();
      const form = page.getByRole("dialog");
      await form.getByLabel("用途").selectOption(type);
      await typeInto(form.getByLabel(type === "SMTP" ? "主机" : "密钥"), "mail.example.com");
      await form.getByRole("button", { name: "保存" }).click();
      await form.waitFor({ state: "detached" });
    }
    await page.unroute("**/credentials");
    return sent;
  }
});
