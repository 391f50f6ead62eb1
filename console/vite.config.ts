import { createHash } from "node:crypto";
import { readdirSync, readFileSync, writeFileSync } from "node:fs";

import { svelte } from "@sveltejs/vite-plugin-svelte";
import { defineConfig, type Plugin } from "vite";

const platform = process.env.THINGWAY_URL ?? "http://127.0.0.1:8080";

/** Write the service worker with the files of the build and a name for it, which changes with any of them. */
const serviceWorker: Plugin = {
  name: "service-worker",
  apply: "build",
  closeBundle() {
    const files = readdirSync("dist/assets").map((name) => `/assets/${name}`);
    const build = createHash("sha256").update(readFileSync("dist/index.html")).update(files.join()).digest("hex").slice(0, 16);
    const known = `const BUILD = ${JSON.stringify(build)};\nconst FILES = ${JSON.stringify(files)};\n`;
    writeFileSync("dist/sw.js", known + readFileSync("src/sw.js", "utf8"));
  },
};

export default defineConfig({
  plugins: [svelte(), serviceWorker],
  build: { target: "es2023", assetsInlineLimit: 0, rolldownOptions: { checks: { pluginTimings: false } } },
  server: {
    // Whatever is no source of the console is the platform's: pages live behind `#`.
    proxy: {
      "^/(?!$|@|src/|node_modules/|index\\.html)": { target: platform, ws: true },
    },
  },
});
