/** Return a function that starts a request and returns a check: is this request still the latest one? */
export function trackLatest(): () => () => boolean {
  let last = 0;
  return () => {
    const own = ++last;
    return () => own === last;
  };
}
