// What stands before people's code. It keeps the functions that it needs to itself, so that
// code which replaces them (JSON.stringify, Object.prototype.toString) only lies to itself.
(() => {
  "use strict";
  const { parse, stringify } = JSON;
  const Make = Function, Text = String, Later = Promise, fulfil = Promise.resolve.bind(Promise);
  const apply = Reflect.apply, then = Promise.prototype.then, Failure = Error;
  const join = Array.prototype.join; // makes flat texts, which the binding can read
  const told = (kind, text) => apply(join, [kind, text], [""]);
  let found = null;

  const keep = (value) => {
    const text = stringify(value === undefined ? null : value);
    found = text === undefined ? "Eits result must not be a function or a symbol" : told("R", text);
  };
  const fail = (error) => {
    let text = "raised something that has no text";
    try {
      text = error instanceof Failure ? `${error.name}: ${error.message}` : `raised ${Text(error)}`;
    } catch { /* what it raised raises, too: the text above stays */ }
    found = told("E", text);
  };
  const guarded = (act) => (value) => { try { act(value); } catch (error) { fail(error); } };

  const unheard = () => {}; // what code prints for its author is read by nobody
  globalThis.console = {
    debug: unheard, error: unheard, info: unheard, log: unheard, warn: unheard,
  };
  globalThis.outcome = () => found;
  globalThis.begin = guarded((request) => {
    found = null;
    const [code, names, values] = parse(request);
    const value = apply(new Make(...names, code), undefined, values);
    if (value instanceof Later) apply(then, fulfil(value), [guarded(keep), fail]);
    else keep(value);
  });
})();
