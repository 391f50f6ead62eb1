/** The current time of all pages, updated every second. */
class Clock {
  now = $state(Date.now());

  constructor() {
    setInterval(() => (this.now = Date.now()), 1_000);
  }
}

export const clock = new Clock();
