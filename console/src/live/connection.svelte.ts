/**
 * The state of the connection to the platform for the whole page. It combines the browser's network state,
 * the answers to requests, and the live socket.
 */

/** Milliseconds between two probes while the platform does not answer. */
const PROBE = 2_000;
/** Milliseconds that a probe may take. */
const PATIENCE = 5_000;

class Connection {
  #hasNetwork = $state(navigator.onLine);
  #answers = $state(true);
  #isSocketLost = $state(false);
  /** How often the connection came back: pages load again what failed. */
  returns = $state(0);
  /** `offline`: the browser has no network; `unreachable`: no answers; `reconnecting`: no live values. */
  state = $derived.by((): "online" | "offline" | "unreachable" | "reconnecting" => {
    if (!this.#hasNetwork) return "offline";
    if (!this.#answers) return "unreachable";
    return this.#isSocketLost ? "reconnecting" : "online";
  });
  #probing = false;

  constructor() {
    addEventListener("offline", () => (this.#hasNetwork = false));
    addEventListener("online", () => this.#change(() => ((this.#hasNetwork = true), (this.#answers = false))));
  }

  /** Record that a request was answered, with any status. */
  answered(): void {
    this.#change(() => (this.#answers = true));
  }

  /** A request was not answered. */
  unanswered(): void {
    this.#change(() => (this.#answers = false));
  }

  /** The live socket is open, or not needed. */
  socketFound(): void {
    this.#change(() => (this.#isSocketLost = false));
  }

  /** The live socket ended, or does not answer. */
  socketLost(): void {
    this.#change(() => (this.#isSocketLost = true));
  }

  /** Return whether the platform answers now. */
  async check(): Promise<boolean> {
    try {
      await fetch("/healthz", { cache: "no-store", signal: AbortSignal.timeout(PATIENCE) });
      this.answered();
      return true;
    } catch {
      this.unanswered();
      return false;
    }
  }

  #change(apply: () => void): void {
    const before = this.state;
    apply();
    if (before !== "online" && this.state === "online") this.returns += 1;
    if (this.#hasNetwork && (!this.#answers || (before === "online" && this.#isSocketLost))) void this.#probe();
  }

  /** Ask until the platform answers: a page need not ask for anything itself. */
  async #probe(): Promise<void> {
    if (this.#probing) return;
    this.#probing = true;
    while (!(await this.check())) await new Promise((resolve) => setTimeout(resolve, PROBE));
    this.#probing = false;
  }
}

export const connection = new Connection();
