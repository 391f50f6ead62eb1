/** Values as they change: one WebSocket for the page, for the keys that somebody looks at. */
import { SvelteMap } from "svelte/reactivity";

import { session } from "../api/session.svelte";
import { connection } from "./connection.svelte";

export interface Live {
  value: unknown;
  /** Milliseconds. */
  timestamp: number;
}

/** The changes to follow. */
export interface Pattern {
  scope: "TENANT" | "GROUP" | "DEVICE";
  /** A pattern of group or device. */
  id?: string;
  type?: "PROPERTY" | "EVENT";
  /** Part of the key or of the device's name. */
  keyword?: string;
}

/** Values of a thing that changed together, by entity key. */
export interface Change {
  type: "PROPERTY" | "EVENT";
  thing_key: string;
  timestamp: number;
  values: Record<string, unknown>;
  device_id?: string;
  device_name?: string;
}

interface Changes {
  /** Values before these that this page did not get, because it could not keep up. */
  skipped: number;
  changes: Change[];
}

interface Follower {
  pattern: Pattern;
  listener: (changes: Changes) => void;
}

/** A value of an entity, and when it was measured (ms). */
export interface Now {
  value: unknown;
  at: number | null;
}

interface Loaded {
  value?: unknown;
  timestamp?: string | number | null;
}

const PAUSES = [500, 1_000, 2_000, 5_000];
/** Milliseconds between two heartbeats; without an answer to one until the next, the socket is dead. */
const HEARTBEAT = 3_000;

class LiveValues {
  /** The latest value of each key that is looked at. */
  readonly values = new SvelteMap<string, Live>();
  /** True while changes arrive. */
  connected = $state(false);
  /** How often a connection was made. */
  connections = $state(0);
  /** Number of reconnects: changes during an interruption are not sent again. */
  returns = $state(0);

  #watched = new Map<string, number>();
  #listeners = new Set<(key: string, change: Live) => void>();
  #follower: Follower | null = null;
  #socket: WebSocket | null = null;
  /** Changes since the last drawing. */
  #fresh = new Map<string, Live>();
  #failures = 0;
  #answered = true;
  #lost = false;
  #timer = 0;
  #heart = 0;

  constructor() {
    addEventListener("offline", () => this.#lose());
    addEventListener("online", () => {
      this.#failures = 0;
      this.#sync();
    });
  }

  /** Return the newer of the live and the loaded value: after an interruption the loaded value is newer. */
  newest(key: string | undefined, loaded?: Loaded): Now {
    const change = key === undefined ? undefined : this.values.get(key);
    const at = loaded?.timestamp ? Number(loaded.timestamp) : null;
    if (change && change.timestamp >= (at ?? 0)) return { value: change.value, at: change.timestamp };
    return { value: loaded?.value, at };
  }

  /** Subscribe to keys until the returned function is called. */
  watch(keys: string[]): () => void {
    for (const key of keys) this.#watched.set(key, (this.#watched.get(key) ?? 0) + 1);
    this.#sync();
    return () => {
      for (const key of keys) {
        const left = (this.#watched.get(key) ?? 1) - 1;
        if (left > 0) this.#watched.set(key, left);
        else {
          this.#watched.delete(key);
          this.values.delete(key);
        }
      }
      this.#sync();
    };
  }

  /** Call a listener for each change of the watched keys, until the returned function is called. */
  listen(listener: (key: string, change: Live) => void): () => void {
    this.#listeners.add(listener);
    return () => void this.#listeners.delete(listener);
  }

  /** Call a listener for changes that match a pattern, until the returned function is called. One page at a time follows. */
  follow(pattern: Pattern, listener: (changes: Changes) => void): () => void {
    const follower = (this.#follower = { pattern, listener });
    this.#sync();
    this.#sendPattern();
    return () => {
      if (this.#follower !== follower) return;
      this.#follower = null;
      this.#sendPattern();
      this.#sync();
    };
  }

  /** True if any key or pattern is subscribed. */
  get #isWanted(): boolean {
    return this.#watched.size > 0 || this.#follower !== null;
  }

  #sync(): void {
    if (!this.#isWanted) {
      this.#leave();
      connection.socketFound();
    } else if (this.#socket === null) {
      void this.#open();
    } else if (this.#socket.readyState === WebSocket.OPEN) {
      const payload = { entity_key: [...this.#watched.keys()] };
      this.#socket.send(JSON.stringify({ event_type: "Exchange", payload }));
    }
  }

  #sendPattern(): void {
    if (this.#socket?.readyState !== WebSocket.OPEN) return;
    this.#socket.send(JSON.stringify({ event_type: "Subscribe", payload: this.#follower?.pattern ?? null }));
  }

  /** Close the socket. Its end is not awaited: without a network, the browser notices that a minute later. */
  #leave(): void {
    clearInterval(this.#heart);
    this.#socket?.close();
    this.#socket = null;
    this.connected = false;
  }

  /** Give up the socket, and try another one. */
  #lose(): void {
    if (!this.#socket) return;
    this.#leave();
    this.#lost = true;
    connection.socketLost();
    this.#later();
  }

  async #open(): Promise<void> {
    const token = await session.token().catch(() => {
      connection.unanswered();
      this.#later();
    });
    if (!token || this.#socket !== null) return;
    const address = new URL("/websocket", location.href);
    address.protocol = address.protocol.replace("http", "ws");
    address.searchParams.set("Authorization", `Bearer ${token}`);
    const socket = (this.#socket = new WebSocket(address));
    socket.onopen = () => {
      if (this.#socket !== socket) return;
      connection.socketFound();
      this.connected = true;
      this.connections += 1;
      if (this.#lost) this.returns += 1;
      this.#lost = false;
      this.#failures = 0;
      this.#answered = true;
      this.#heart = setInterval(() => this.#beat(socket), HEARTBEAT);
      this.#sync();
      if (this.#follower) this.#sendPattern();
    };
    socket.onmessage = (event) => this.#socket === socket && this.#receive(JSON.parse(event.data as string) as Frame);
    socket.onclose = () => this.#socket === socket && this.#lose();
  }

  /** Try again, longer after each failure. */
  #later(): void {
    clearTimeout(this.#timer);
    if (this.#isWanted) this.#timer = setTimeout(() => this.#sync(), this.#pause());
  }

  #beat(socket: WebSocket): void {
    if (!this.#answered) return this.#lose();
    this.#answered = false;
    socket.send(JSON.stringify({ event_type: "Heartbeat", payload: "ping" }));
  }

  #receive(frame: Frame): void {
    this.#answered = true;
    if (frame.event_type === "Changes") this.#follower?.listener(frame.payload);
    if (frame.event_type !== "Exchange") return;
    for (const [key, live] of Object.entries(frame.payload.values ?? {})) {
      if (!this.#watched.has(key)) continue;
      if (this.#fresh.size === 0) requestAnimationFrame(() => this.#show());
      this.#fresh.set(key, live);
      for (const listener of this.#listeners) listener(key, live);
    }
  }

  /** However often values change, a page is drawn once a frame. */
  #show(): void {
    for (const [key, live] of this.#fresh) if (this.#watched.has(key)) this.values.set(key, live);
    this.#fresh.clear();
  }

  #pause(): number {
    return PAUSES[Math.min(this.#failures++, PAUSES.length - 1)]!;
  }
}

type Frame =
  | { event_type: "Exchange"; payload: { values?: Record<string, Live> } }
  | { event_type: "Changes"; payload: Changes }
  | { event_type: "Subscribe"; payload: Pattern | null }
  | { event_type: "Heartbeat"; payload: string };

export const live = new LiveValues();
