// Converts names and types between the TSL of a template and its scripts, which use numbers for
// booleans and choices, and some other names. `template_parser.py` sets the tables.
const DECODED = {};
const ENCODED = {};

// A second value with the same path gets a separate path, which the platform reports as unknown.
function put(found, path, value) {
  found[Object.hasOwn(found, path) ? `${path}#` : path] = value;
}

function leaves(value, above, found) {
  for (const key of Object.keys(value)) {
    const path = above + key.replaceAll("#", ".");
    const inner = value[key];
    const branches = inner !== null && typeof inner === "object" && !Array.isArray(inner);
    if (branches && Object.keys(inner).length) leaves(inner, `${path}.`, found);
    else put(found, path, inner);
  }
  return found;
}

function decoded(given) {
  const found = {};
  for (const [path, value] of Object.entries(leaves(given, "", {})))
    put(found, Object.hasOwn(DECODED, path) ? DECODED[path] : path, value);
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
