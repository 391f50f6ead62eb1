/** What was done, for undoing and doing again. */

/** Steps that can be undone. */
const MOST = 100;

export interface History<T> {
  past: T[];
  present: T;
  future: T[];
  /** Of the last change: the next one with the same mark belongs to it, as letters typed do. */
  mark: string;
}

export function begun<T>(present: T): History<T> {
  return { past: [], present, future: [], mark: "" };
}

export function changed<T>(history: History<T>, present: T, mark = ""): History<T> {
  if (present === history.present) return history;
  const goesOn = mark !== "" && mark === history.mark;
  const past = goesOn ? history.past : [...history.past, history.present].slice(-MOST);
  return { past, present, future: [], mark };
}

export function undone<T>(history: History<T>): History<T> {
  const last = history.past.at(-1);
  if (last === undefined) return history;
  return { past: history.past.slice(0, -1), present: last, future: [history.present, ...history.future], mark: "" };
}

export function redone<T>(history: History<T>): History<T> {
  const [next, ...future] = history.future;
  if (next === undefined) return history;
  return { past: [...history.past, history.present], present: next, future, mark: "" };
}
