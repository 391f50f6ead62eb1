// Makes the values that a template declares of what its scripts give, and the reverse: its scripts
// have numbers for booleans and choices, and sometimes other names. `templates.py` sets the tables.
const DECODED = {};
const ENCODED = {};

function leaves(value, above, found) {
  for (const key of Object.keys(value)) {
    const path = above + key.replaceAll("#", ".");
    const inner = value[key];
    const branches = inner !== null && typeof inner === "object" && !Array.isArray(inner);
    if (branches && Object.keys(inner).length) leaves(inner, `${path}.`, found);
    else found[path] = inner;
  }
  return found;
}

function decoded(given) {
  const found = {};
  for (const [path, value] of Object.entries(leaves(given, "", {}))) {
    const [name, type] = Object.hasOwn(DECODED, path) ? DECODED[path] : [path];
    if (type === "boolean" && typeof value === "number") found[name] = value !== 0;
    else if (path === "history" && Array.isArray(value)) found[name] = value.map(decoded);
    else found[name] = value;
  }
  return found;
}

function encoded(given) {
  const found = {};
  for (const [path, value] of Object.entries(leaves(given, "", {}))) {
    const [name, type] = Object.hasOwn(ENCODED, path) ? ENCODED[path] : [path];
    if (type && (typeof value === "boolean" || typeof value === "string")) found[name] = Number(value);
    else found[name] = value;
  }
  return found;
}
