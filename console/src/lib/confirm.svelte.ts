/** Asks before something is destroyed: `if (await confirm({...})) …`. `Confirm.svelte` shows it. */
import { toasts } from "./toasts.svelte";

export interface Question {
  title: string;
  /** The consequences of the action, and whether it can be undone. */
  text: string;
  /** The word on the button that does it: "Delete", unless given. */
  action?: string;
  /** Text that the user must type before the button works, for actions that cannot be undone. */
  typed?: string;
  /** The button is not red: nothing is destroyed. */
  harmless?: boolean;
}

class Confirmation {
  question = $state.raw<Question | null>(null);
  #answer: (yes: boolean) => void = () => {};

  ask(question: Question): Promise<boolean> {
    this.#answer(false);
    this.question = question;
    return new Promise((resolve) => (this.#answer = resolve));
  }

  answer(yes: boolean): void {
    this.#answer(yes);
    this.question = null;
  }
}

export const confirmation = new Confirmation();
export const confirm = (question: Question): Promise<boolean> => confirmation.ask(question);

/** Ask, and do it if one agrees: then `done` is said, or what failed. True when it was done. */
export async function confirmAndRun(question: Question, work: () => Promise<unknown>, done: string): Promise<boolean> {
  return (await confirm(question)) && toasts.during(work, done);
}
