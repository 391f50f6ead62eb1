/**
 * Who is signed in on this page.
 *
 * The access token stays in memory. The refresh token is kept for the next page, and for the
 * other tabs: it is used up each time, so one tab at a time takes it (a lock of the browser).
 *
 * When a session ends while its page is open, the page stays: `expired` shows a dialog that asks for the
 * password, and requests wait until it is answered.
 */
import { allows } from "../access";
import { t } from "../i18n/index.svelte";
import { connection } from "../live/connection.svelte";
import type { MenuNode, Profile } from "./generated";

const CLIENT = "thingway-console";
const KEPT = "thingway.refresh-token";
/** The id of the user whose refresh token is kept. */
const OWNER = "thingway.user";
const LOCK = "thingway.refresh";
/** Milliseconds before its end at which an access token is renewed. */
const EARLY = 60_000;

interface Tokens {
  access_token: string;
  refresh_token: string;
  expires_in: number;
}

export class SignInRefused extends Error {}

class Session {
  user = $state<Profile | null>(null);
  /** True when the session has ended while the page is open. */
  expired = $state(false);
  /** True while the page has edits that its user must not lose; set by the guard of the routes. */
  hasUnsaved: () => boolean = () => false;

  #access = "";
  #until = 0;
  #waiting: (() => void)[] = [];

  may(code: string): boolean {
    return this.user?.super_admin === true || (this.#codes?.has(code) ?? false);
  }

  /** Return whether the user may open a route of the console, such as `/devices/:id`. */
  mayOpen(route: string): boolean {
    return allows(route, (code) => this.may(code));
  }

  /** True if the user may set values and call services: with an edit function, or as a viewer if the tenant allows it. */
  get mayCommand(): boolean {
    return this.user?.may_command === true;
  }

  #codes = $derived(this.user && new Set(menuCodes(this.user.menus)));

  /** Return a valid access token; null when nobody is signed in. Waits while the session is expired. */
  async token(): Promise<string | null> {
    while (Date.now() >= this.#until - EARLY && !(await this.renew())) {
      if (!this.user) return null;
      this.expired = true;
      await new Promise<void>((resolve) => this.#waiting.push(resolve));
    }
    return this.#access;
  }

  /** Return a token in place of one that the platform rejects; null when nobody is signed in. */
  replace(rejected: string): Promise<string | null> {
    if (rejected === this.#access) this.#until = 0;
    return this.token();
  }

  /** Take the refresh token to the platform; false when it is good no longer. */
  async renew(): Promise<boolean> {
    return navigator.locks.request(LOCK, async () => {
      const kept = localStorage.getItem(KEPT);
      if (kept === null || this.#isOthers()) return false;
      const answer = await requestToken({ grant_type: "refresh_token", refresh_token: kept });
      if (answer.ok) this.#take((await answer.json()) as Tokens);
      else if (answer.status === 401) this.#drop();
      else throw new Error(t("failure.status", { status: String(answer.status) }));
      return answer.ok;
    });
  }

  /** Sign in at a tenant and return the profile for `enter`; "" is the tenant of a platform that has one only. */
  async signIn(username: string, password: string, tenant = ""): Promise<Profile> {
    return navigator.locks.request(LOCK, async () => {
      const answer = await requestToken({ grant_type: "password", username, password }, tenant);
      if (answer.status === 401) throw new SignInRefused();
      if (!answer.ok) throw new Error(t("failure.status", { status: String(answer.status) }));
      const tokens = (await answer.json()) as Tokens;
      const profile = await loadProfile(tokens.access_token);
      localStorage.setItem(OWNER, profile.user_id);
      if (!this.#isOthers()) this.#take(tokens);
      else this.#leaveTo(tokens);
      return profile;
    });
  }

  /** Open the console for the user who has signed in. */
  enter(profile: Profile): void {
    localStorage.setItem(OWNER, profile.user_id);
    this.user = profile;
  }

  /** End the session here and on the platform, which revokes its tokens. */
  signOut(): void {
    const headers = { Authorization: `Bearer ${this.#access}` };
    if (this.#access) void fetch("/user/sessions/current", { method: "DELETE", headers, keepalive: true });
    this.leave();
  }

  /** Be signed in no longer on this page. */
  leave(): void {
    this.#drop();
    this.user = null;
    this.#resume();
  }

  /** Follow what other tabs do: they sign out, sign in again, or sign in as another user. */
  follow(key: string | null, value: string | null): void {
    if (!this.user) return;
    if (key === OWNER && this.#isOthers()) this.#reload();
    else if (key === KEPT && value !== null && this.expired) this.#resume();
    else if ((key === KEPT || key === null) && value === null) {
      this.#until = 0;
      if (this.hasUnsaved()) this.expired = true;
      else this.leave();
    }
  }

  /** True when another user has signed in, in another tab. */
  #isOthers(): boolean {
    return this.user !== null && localStorage.getItem(OWNER) !== this.user.user_id;
  }

  #take(tokens: Tokens): void {
    localStorage.setItem(KEPT, tokens.refresh_token);
    this.#access = tokens.access_token;
    this.#until = Date.now() + tokens.expires_in * 1000;
    this.#resume();
  }

  #drop(): void {
    localStorage.removeItem(KEPT);
    this.#access = "";
    this.#until = 0;
  }

  /** Let the requests go on that wait. */
  #resume(): void {
    this.expired = false;
    for (const resolve of this.#waiting.splice(0)) resolve();
  }

  #leaveTo(tokens: Tokens): void {
    localStorage.setItem(KEPT, tokens.refresh_token);
    this.#reload();
  }

  /** Start the page again: nothing of the former user, such as a half-filled form, stays in it. */
  #reload(): void {
    this.user = null;
    location.reload();
  }
}

function requestToken(fields: Record<string, string>, tenant = ""): Promise<Response> {
  const body = new URLSearchParams({ client_id: CLIENT, ...fields });
  return fetchPlatform("/oauth2/token", { method: "POST", body, headers: tenant ? { TENANT_ID: tenant } : {} });
}

/** Fetch; throws an error in words of the reader when the platform does not answer. */
async function fetchPlatform(path: string, init: RequestInit): Promise<Response> {
  try {
    const answer = await fetch(path, init);
    connection.answered();
    return answer;
  } catch {
    connection.unanswered();
    throw new Error(t("failure.offline"));
  }
}

async function loadProfile(access: string): Promise<Profile> {
  const answer = await fetchPlatform("/user", { headers: { Authorization: `Bearer ${access}` } });
  if (!answer.ok) throw new Error(t("failure.status", { status: String(answer.status) }));
  return ((await answer.json()) as { data: Profile }).data;
}

function menuCodes(menus: MenuNode[]): string[] {
  return menus.flatMap((menu) => [menu.code, ...menuCodes(menu.children)]);
}

export const session = new Session();

addEventListener("storage", (event) => session.follow(event.key, event.newValue));
