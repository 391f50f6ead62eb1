import { mount } from "svelte";

import App from "./App.svelte";
import "./app.css";
import { preferredLanguage, localization } from "./i18n/index.svelte";
import { activateOnce } from "./lib/keys";
import { connection } from "./live/connection.svelte";

/** Milliseconds within which the page is not loaded a second time. */
const AGAIN = 10_000;
/** Milliseconds until the files of all pages are fetched: the first page comes before them. */
const IDLE = 2_000;

// The platform was updated under the open page: its parts have other names now. Or the network is away: then the page stays.
addEventListener("vite:preloadError", () => {
  void reloadIfAnswered();
});

async function reloadIfAnswered(): Promise<void> {
  const last = Number(sessionStorage.getItem("thingway.reloaded"));
  if (Date.now() - last < AGAIN || !(await connection.check())) return;
  sessionStorage.setItem("thingway.reloaded", String(Date.now()));
  location.reload();
}

if (import.meta.env.PROD && "serviceWorker" in navigator) setTimeout(() => void navigator.serviceWorker.register("/sw.js"), IDLE);

addEventListener("keydown", activateOnce, { capture: true });

await localization.load(preferredLanguage());
mount(App, { target: document.getElementById("app")! });
