/** States of a design, for undo and redo. */

/** Steps that can be undone. */
const MOST = 100;

export interface History<T> {
  past: T[];
  present: T;
  future: T[];
  /** The mark of the last change: following changes with the same mark join it, such as typed letters. */
  mark: string;
}

export function startHistory<T>(present: T): History<T> {
  return { past: [], present, future: [], mark: "" };
}

export function addState<T>(history: History<T>, present: T, mark = ""): History<T> {
  if (present === history.present) return history;
  const goesOn = mark !== "" && mark === history.mark;
  const past = goesOn ? history.past : [...history.past, history.present].slice(-MOST);
  return { past, present, future: [], mark };
}

export function undo<T>(history: History<T>): History<T> {
  const last = history.past.at(-1);
  if (last === undefined) return history;
  return { past: history.past.slice(0, -1), present: last, future: [history.present, ...history.future], mark: "" };
}

export function redo<T>(history: History<T>): History<T> {
  const [next, ...future] = history.future;
  if (next === undefined) return history;
  return { past: [...history.past, history.present], present: next, future, mark: "" };
}
