/** Private servers for one suite: a RabbitMQ and a Redis that are gone when the suite is. */
import { execFile } from "node:child_process";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";

import { ROOT } from "./fixtures.js";

const run = promisify(execFile);

export class Server {
  readonly #script: string;
  readonly #directory: string;
  url = "";

  constructor(script: "start-rabbit" | "start-redis") {
    this.#script = fileURLToPath(new URL(`tests/support/${script}`, ROOT));
    this.#directory = join(tmpdir(), `shardvisor-typescript-${script}-${process.pid}`);
  }

  async up(): Promise<this> {
    const { stdout } = await run(this.#script, ["up", this.#directory, "--while", String(process.pid)]);
    this.url = /^URL=(.*)$/m.exec(stdout)?.[1] ?? "";
    return this;
  }

  async run(action: string, ...more: string[]): Promise<string> {
    return (await run(this.#script, [action, this.#directory, ...more])).stdout;
  }
}
