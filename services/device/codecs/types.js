// Names and types between the TSL of a template and its scripts, which have numbers for booleans and
// choices, and a few names of their own. `templates.py` sets the tables.
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
  for (const [path, value] of Object.entries(leaves(given, "", {})))
    found[Object.hasOwn(DECODED, path) ? DECODED[path] : path] = value;
  return found;
}

function encoded(given) {
  const found = {};
  for (const [path, value] of Object.entries(leaves(given, "", {}))) {
    const { name, number } = Object.hasOwn(ENCODED, path) ? ENCODED[path] : { name: path };
    found[name] = number ? Number(value) : value;
  }
  return found;
}
