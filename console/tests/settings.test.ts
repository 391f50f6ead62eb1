import assert from "node:assert/strict";
import { test } from "node:test";

import { isIdle, presetOf } from "../src/features/integrations/settings.ts";

const keys = ["webhook.integration.preset", "webhook.integration.device", "webhook.integration.webhook_token"];
const texts = (preset: string) => Object.fromEntries(keys.map((key) => [key, key.endsWith("preset") ? preset : ""]));

test("a preset makes JSON pointers idle, and nothing else", () => {
  assert.equal(isIdle("webhook.integration.device", texts("helium")), true);
  assert.equal(isIdle("webhook.integration.webhook_token", texts("helium")), false);
  assert.equal(isIdle("webhook.integration.preset", texts("helium")), false);
});

test("own pointers count without a preset", () => {
  for (const preset of ["", "custom"]) assert.equal(isIdle("webhook.integration.device", texts(preset)), false);
  assert.equal(presetOf(["chirpstack.integration.broker"]), undefined);
  assert.equal(isIdle("milesight.integration.device", {}), false);
});
