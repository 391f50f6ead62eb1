/** The light or dark theme: the system's setting, until the user chooses. */
const KEPT = "thingway.theme";

class Theme {
  #chosen = $state(localStorage.getItem(KEPT));
  #system = $state(false);

  constructor() {
    this.#show();
    const system = matchMedia("(prefers-color-scheme: dark)");
    this.#system = system.matches;
    system.addEventListener("change", ({ matches }) => (this.#system = matches));
  }

  get dark(): boolean {
    return this.#chosen ? this.#chosen === "dark" : this.#system;
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
