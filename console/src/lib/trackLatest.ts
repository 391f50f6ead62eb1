/** Return a function to call before each request. It returns a function that tests whether the request is the latest. */
export function trackLatest(): () => () => boolean {
  let last = 0;
  return () => {
    const own = ++last;
    return () => own === last;
  };
}
