/** Light or dark: what the system says until somebody chooses. */
import { MediaQuery } from "svelte/reactivity";

const KEPT = "thingway.theme";

class Theme {
  #system = new MediaQuery("prefers-color-scheme: dark");
  #chosen = $state(localStorage.getItem(KEPT));

  constructor() {
    this.#show();
  }

  get dark(): boolean {
    return this.#chosen ? this.#chosen === "dark" : this.#system.current;
  }

  turn(): void {
    this.#chosen = this.dark ? "light" : "dark";
    localStorage.setItem(KEPT, this.#chosen);
    this.#show();
  }

  #show(): void {
    if (this.#chosen) document.documentElement.dataset.theme = this.#chosen;
  }
}

export const theme = new Theme();
