// node generate.mjs DOCUMENT DIRECTORY: a TypeScript client that Node runs as it stands.
import { createClient } from "@hey-api/openapi-ts";

const [, , input, path] = process.argv;
await createClient({ input, output: { path, importFileExtension: ".ts" } });
