import { mount } from "svelte";

import App from "./App.svelte";
import "./app.css";
import { preferred, reader } from "./i18n/index.svelte";
import { activateOnce } from "./lib/keys";

/** Milliseconds within which the page is not loaded a second time. */
const AGAIN = 10_000;

// The platform was updated under the open page: its parts have other names now.
addEventListener("vite:preloadError", () => {
  const last = Number(sessionStorage.getItem("thingway.reloaded"));
  if (Date.now() - last < AGAIN) return;
  sessionStorage.setItem("thingway.reloaded", String(Date.now()));
  location.reload();
});

addEventListener("keydown", activateOnce, { capture: true });

await reader.choose(preferred());
mount(App, { target: document.getElementById("app")! });
