/** Short notes at the edge of the page: what was done, or what failed away from any form. */
import { Failure } from "../api/client";
import { t } from "../i18n/index.svelte";

/** Milliseconds that a note of success stands; failures stand until they are put away. */
const STANDS = 5_000;

export interface Toast {
  id: number;
  text: string;
  bad: boolean;
}

class Toasts {
  all = $state<Toast[]>([]);
  #next = 0;

  say(text: string): void {
    const { id } = this.#add(text, false);
    setTimeout(() => this.drop(id), STANDS);
  }

  /** Tell what failed, with the request that the logs know. */
  fail(error: unknown): void {
    const message = error instanceof Error ? error.message : String(error);
    const request = error instanceof Failure && error.requestId;
    this.#add(request ? `${message} · ${t("failure.request", { id: request })}` : message, true);
  }

  /** Run `work` and say `done` after it; a failure is told. True when it did not fail. */
  async during(work: () => Promise<unknown>, done: string): Promise<boolean> {
    try {
      await work();
      this.say(done);
      return true;
    } catch (failure) {
      this.fail(failure);
      return false;
    }
  }

  drop(id: number): void {
    this.all = this.all.filter((toast) => toast.id !== id);
  }

  #add(text: string, bad: boolean): Toast {
    const toast = { id: this.#next++, text, bad };
    this.all = [...this.all, toast].slice(-4);
    return toast;
  }
}

export const toasts = new Toasts();
