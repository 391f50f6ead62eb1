// Runs before user code. It captures the functions that it needs, so that user code which replaces
// them (JSON.stringify, Object.prototype.toString) affects only itself.
(() => {
  "use strict";
  const { parse, stringify } = JSON;
  const Make = Function, Text = String, Later = Promise, fulfil = Promise.resolve.bind(Promise);
  const apply = Reflect.apply, then = Promise.prototype.then, Failure = Error;
  const join = Array.prototype.join; // returns a flat text, which the Python binding can read
  const tag = (kind, text) => apply(join, [kind, text], [""]);
  let found = null;

  const keep = (value) => {
    const text = stringify(value === undefined ? null : value);
    found = text === undefined ? "Eits result must not be a function or a symbol" : tag("R", text);
  };
  const fail = (error) => {
    let text = "raised something that has no text";
    try {
      text = error instanceof Failure ? `${error.name}: ${error.message}` : `raised ${Text(error)}`;
    } catch { /* the raised value cannot be converted to text: keep the text above */ }
    found = tag("E", text);
  };
  const guarded = (act) => (value) => { try { act(value); } catch (error) { fail(error); } };

  const ignore = () => {}; // the console output of user code is not stored
  globalThis.console = {
    debug: ignore, error: ignore, info: ignore, log: ignore, warn: ignore,
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
