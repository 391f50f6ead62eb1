/**
 * Who is signed in on this page.
 *
 * The access token stays in memory. The refresh token is kept for the next page, and for the
 * other tabs: it is used up each time, so one tab at a time takes it (a lock of the browser).
 */
import { allows } from "../access";
import type { MenuNode, Profile } from "./generated";

const CLIENT = "thingway-console";
const KEPT = "thingway.refresh-token";
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
  /** Why the page was left: shown where one signs in. */
  ended = $state(false);

  #access = "";
  #until = 0;

  may(code: string): boolean {
    return this.user?.super_admin === true || (this.#codes?.has(code) ?? false);
  }

  /** Whether the user may open a route of the console, such as `/devices/:id`. */
  mayOpen(route: string): boolean {
    return allows(route, (code) => this.may(code));
  }

  /** Whether the user may set values and call services: with a function to edit, or as the tenant lets viewers. */
  get mayCommand(): boolean {
    return this.user?.may_command === true;
  }

  #codes = $derived(this.user && new Set(codes(this.user.menus)));

  /** An access token that is good for now; null when nobody is signed in. */
  async token(): Promise<string | null> {
    if (Date.now() < this.#until - EARLY) return this.#access;
    return (await this.renew()) ? this.#access : null;
  }

  /** Take the refresh token to the platform; false when it is good no longer. */
  async renew(): Promise<boolean> {
    return navigator.locks.request(LOCK, async () => {
      const kept = localStorage.getItem(KEPT);
      if (kept === null) return false;
      const answer = await grant({ grant_type: "refresh_token", refresh_token: kept });
      if (answer.ok) this.#take((await answer.json()) as Tokens);
      else if (answer.status === 401) this.forget();
      else throw new Error(`the platform answers ${answer.status}`);
      return answer.ok;
    });
  }

  /** Sign in at a tenant; "" is that of a platform that has one only. */
  async signIn(username: string, password: string, tenant = ""): Promise<void> {
    const answer = await grant({ grant_type: "password", username, password }, tenant);
    if (answer.status === 401) throw new SignInRefused();
    if (!answer.ok) throw new Error(`the platform answers ${answer.status}`);
    this.#take((await answer.json()) as Tokens);
  }

  /** Somebody signed in a moment ago is told that the session has ended. */
  forget(): void {
    this.ended = this.user !== null;
    localStorage.removeItem(KEPT);
    this.#access = "";
    this.#until = 0;
    this.user = null;
  }

  /** End the session, on the platform too: its tokens are of no more use to anybody. */
  signOut(): void {
    const headers = { Authorization: `Bearer ${this.#access}` };
    if (this.#access) void fetch("/user/sessions/current", { method: "DELETE", headers, keepalive: true });
    this.leave();
  }

  /** Be signed in no longer on this page. */
  leave(): void {
    this.forget();
    this.ended = false;
  }

  #take(tokens: Tokens): void {
    localStorage.setItem(KEPT, tokens.refresh_token);
    this.#access = tokens.access_token;
    this.#until = Date.now() + tokens.expires_in * 1000;
    this.ended = false;
  }
}

function grant(fields: Record<string, string>, tenant = ""): Promise<Response> {
  const body = new URLSearchParams({ client_id: CLIENT, ...fields });
  return fetch("/oauth2/token", { method: "POST", body, headers: tenant ? { TENANT_ID: tenant } : {} });
}

function codes(menus: MenuNode[]): string[] {
  return menus.flatMap((menu) => [menu.code, ...codes(menu.children)]);
}

export const session = new Session();

// Who signs out in one tab has signed out in all.
addEventListener("storage", (event) => {
  if (event.key === KEPT && event.newValue === null) session.leave();
});
