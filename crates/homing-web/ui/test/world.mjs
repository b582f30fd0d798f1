// A home folder, a project, a scripted model and a server for browser tests, all of them real and thrown away afterwards.
import { execFileSync, spawn } from "node:child_process";
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { startModel } from "./model.mjs";

export const until = async (what, check, ms = 20_000) => {
  const end = Date.now() + ms;
  for (;;) {
    const found = await check();
    if (found) return found;
    if (Date.now() > end) throw new Error(`timed out: ${what}`);
    await new Promise((done) => setTimeout(done, 50));
  }
};

const freePort = () => new Promise((done) => {
  const server = createServer().listen(0, "127.0.0.1", () => {
    const { port } = server.address();
    server.close(() => done(port));
  });
});

export class World {
  static async create(binary, { delay = 120, scripts = {} } = {}) {
    const world = new World();
    world.binary = binary;
    world.folder = mkdtempSync(join(tmpdir(), "homing-web-"));
    world.home = join(world.folder, "home");
    world.project = join(world.folder, "shop");
    for (const folder of [join(world.home, ".config/homing"), join(world.project, ".homing/agents")]) mkdirSync(folder, { recursive: true });
    world.model = await startModel({ delay, scripts });
    writeFileSync(join(world.home, ".config/homing/config.toml"), `
model = "demo/large"
[providers.demo]
wire = "chat"
base_url = "${world.model.url}"
api_key_env = "DEMO_KEY"
prices = { "*" = { input = 2.5, output = 10 } }
[rules]
ask = ["bash(npm *)"]
`);
    writeFileSync(join(world.project, "README.md"), "# Shop\n\nA small shop.\n");
    execFileSync("git", ["init", "-q", world.project]);
    const { PATH, LANG } = process.env;
    world.env = { PATH, LANG, HOME: world.home, XDG_RUNTIME_DIR: world.folder, TMPDIR: world.folder, DEMO_KEY: "x", NO_COLOR: "1" };
    world.port = await freePort();
    world.children = new Set();
    // Also after an error that nothing catches.
    process.on("exit", () => world.close());
    return world;
  }

  /** Runs a command to its end and returns its output. */
  cli(...args) {
    return new Promise((done, fail) => {
      const child = this.start(args);
      let out = "";
      child.stdout.on("data", (data) => (out += data));
      child.stderr.resume();
      child.on("exit", () => done(out));
      child.on("error", fail);
    });
  }

  start(args, input) {
    const child = spawn(this.binary, args, { cwd: this.project, env: this.env, stdio: [input === undefined ? "ignore" : "pipe", "pipe", "pipe"] });
    if (input !== undefined) child.stdin.end(input);
    this.children.add(child);
    child.on("exit", () => this.children.delete(child));
    return child;
  }

  /** Starts the server, always at the same address. */
  async serve() {
    this.server = this.start(["serve", "--listen", `127.0.0.1:${this.port}`]);
    let out = "";
    this.server.stdout.on("data", (data) => (out += data));
    this.server.stderr.on("data", (data) => (out += data));
    this.link = await until(`the link of the server, got: ${out}`, () => /http:\S+token=\S+/.exec(out)?.[0]);
    this.url = `http://127.0.0.1:${this.port}`;
    this.token = new URL(this.link).searchParams.get("token");
  }

  async kill() {
    const gone = new Promise((done) => this.server.on("exit", done));
    this.server.kill("SIGKILL");
    await gone;
  }

  async api(path, body) {
    const headers = { authorization: `Bearer ${this.token}`, ...(body ? { "content-type": "application/json" } : {}) };
    const response = await fetch(this.url + path, { headers, ...(body ? { method: "POST", body: JSON.stringify(body) } : {}) });
    const answer = await response.json();
    if (!response.ok) throw new Error(`${path}: ${JSON.stringify(answer)}`);
    return answer;
  }

  /** Starts a run and returns the ID of its tree. */
  async run(task, more = {}) {
    return (await this.api("/api/runs", { task, ...more })).tree;
  }

  async ended(tree) {
    return until(`the end of ${tree}`, async () => {
      const row = await this.api(`/api/trees/${tree}`);
      return !["queued", "running", "waiting"].includes(row.status) && row;
    });
  }

  close() {
    for (const child of this.children) child.kill("SIGKILL");
    this.model.close();
    rmSync(this.folder, { recursive: true, force: true, maxRetries: 5 });
  }
}
