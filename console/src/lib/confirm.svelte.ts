/** Asks before something is destroyed: `if (await confirm({...})) …`. `Confirm.svelte` shows it. */

export interface Question {
  title: string;
  /** What is destroyed with it, and whether it can be had back. */
  text: string;
  /** The word on the button that does it. */
  action: string;
  /** What must be typed before the button works, for what cannot be undone. */
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
