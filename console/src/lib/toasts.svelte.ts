/** Short messages at the edge of the page about finished actions and errors. */
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

  /** Show an error with its request id. */
  fail(error: unknown): void {
    const message = error instanceof Error ? error.message : String(error);
    const request = error instanceof Failure && error.requestId;
    this.#add(request ? `${message} · ${t("failure.request", { id: request })}` : message, true);
  }

  /** Run `work` and then show `done`, or the error. Return whether it succeeded. */
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
