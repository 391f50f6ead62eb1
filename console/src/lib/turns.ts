/** Tells of each call whether it still is the newest: an earlier question may be answered later. */
export function turns(): () => () => boolean {
  let last = 0;
  return () => {
    const own = ++last;
    return () => own === last;
  };
}
