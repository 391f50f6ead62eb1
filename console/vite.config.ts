import { svelte } from "@sveltejs/vite-plugin-svelte";
import { defineConfig } from "vite";

const platform = process.env.THINGWAY_URL ?? "http://127.0.0.1:8080";

export default defineConfig({
  plugins: [svelte()],
  build: { target: "es2023", assetsInlineLimit: 0, rolldownOptions: { checks: { pluginTimings: false } } },
  server: {
    // Whatever is no source of the console is the platform's: pages live behind `#`.
    proxy: {
      "^/(?!$|@|src/|node_modules/|index\\.html)": { target: platform, ws: true },
    },
  },
});
