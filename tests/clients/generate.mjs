// node generate.mjs DOCUMENT DIRECTORY: writes a TypeScript client that Node runs without a build.
import { createClient } from "@hey-api/openapi-ts";

const [, , input, path] = process.argv;
await createClient({ input, output: { path, importFileExtension: ".ts" } });
