/** The time, as pages show it: it ticks once a second, for all of them. */
class Clock {
  now = $state(Date.now());

  constructor() {
    setInterval(() => (this.now = Date.now()), 1_000);
  }
}

export const clock = new Clock();
