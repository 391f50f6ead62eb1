/** Light or dark: what the system says until somebody chooses. */
const KEPT = "thingway.theme";

class Theme {
  #chosen = $state(localStorage.getItem(KEPT));

  constructor() {
    this.#show();
  }

  get dark(): boolean {
    return this.#chosen ? this.#chosen === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
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
