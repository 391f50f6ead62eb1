/**
 * The service worker: keeps the shell and the page files of a build, so that an unvisited page
 * opens without a network and shows a message. It never stores data of the platform. The build writes `BUILD` and `FILES`
 * above this text.
 */
/* global BUILD, FILES */
const PREFIX = "thingway-console-";
const NAME = PREFIX + BUILD;
/** Builds that are kept: tabs that are open during an upgrade still load files of the build before. */
const BUILDS = 2;
const SHELL = "/";

self.addEventListener("install", (event) => event.waitUntil(install()));
self.addEventListener("activate", (event) => event.waitUntil(activate()));
self.addEventListener("fetch", (event) => {
  const { pathname, origin } = new URL(event.request.url);
  if (event.request.method !== "GET" || origin !== location.origin) return;
  if (event.request.mode === "navigate" && pathname === SHELL) event.respondWith(shell(event.request));
  else if (pathname.startsWith("/assets/")) event.respondWith(file(event.request));
});

async function install() {
  const cache = await caches.open(NAME);
  await cache.addAll([new Request(SHELL, { cache: "reload" }), ...FILES]);
  await self.skipWaiting();
}

async function activate() {
  const builds = (await caches.keys()).filter((name) => name.startsWith(PREFIX) && name !== NAME);
  await Promise.all(builds.slice(0, Math.max(0, builds.length - BUILDS + 1)).map((name) => caches.delete(name)));
  await self.clients.claim();
}

/** The page of the platform that runs now; the kept one only when the platform does not answer. */
async function shell(request) {
  try {
    return await fetch(request);
  } catch (failure) {
    const kept = await (await caches.open(NAME)).match(SHELL, { ignoreVary: true });
    if (kept) return kept;
    throw failure;
  }
}

/** A file never changes under its name, nor with headers of the request. */
async function file(request) {
  return (await caches.match(request, { ignoreVary: true })) ?? fetch(request);
}
