/** The fixtures that the suites of all three languages read. */
import { readFileSync } from "node:fs";

/** The root of the repository, from build/test. */
export const ROOT = new URL("../../../../", import.meta.url);

export function fixture<T>(name: string): T {
  return JSON.parse(readFileSync(new URL(`tests/fixtures/${name}`, ROOT), "utf8")) as T;
}
