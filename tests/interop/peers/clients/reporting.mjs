// What the scripts of the clients in JavaScript share; reporting.py says what they are asked for, and what they report.
// `node checks.mjs PACKAGES ASKED`: PACKAGES is the folder with node_modules.

import { appendFileSync } from "node:fs";
import { createRequire } from "node:module";
import { join } from "node:path";

const [packages, asked] = process.argv.slice(2);

export const require = createRequire(join(packages, "package.json"));
export const asks = JSON.parse(asked);

export async function collect(stream) {
  const found = [];
  for await (const one of stream) found.push(one);
  return found;
}

const WITHIN_MILLISECONDS = 30000;

const late = () =>
  new Promise((_, reject) => setTimeout(() => reject(new Error("no end within 30 seconds")), WITHIN_MILLISECONDS).unref());

export async function report(checks) {
  for (const name of asks.checks) {
    let seen;
    try {
      seen = await Promise.race([checks[name](), late()]);
    } catch (error) {
      seen = { raised: String(error?.stack ?? error) };
    }
    appendFileSync(asks.lines, `${JSON.stringify({ check: name, ...seen })}\n`);
  }
  process.exit(); // a stream that a failed check has left open would keep the process
}
