// Makes the pictures of docs/WEB.md from real runs: node pictures.mjs HOMING FOLDER
import { chromium } from "playwright-core";
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { until, World } from "./world.mjs";

const [binary, folder] = process.argv.slice(2);

const scripts = {
  "Find out how payments fail": "spawn explore: Read the payment client|Read the retry logic|Look for tests of declined cards\nwrite docs/payments.md # Payments\\n\\nDeclined cards are returned as values.\\n\nedit docs/payments.md Declined cards are returned as values. => Declined cards are returned as values, never thrown.\nbash wc -l docs/payments.md\nsay Payments fail in **three** ways, all of them covered:\\n\\n| case | handled in | tested |\\n|---|---|---|\\n| declined card | `client.ts` | yes |\\n| timeout | `retry.ts` | yes |\\n| wrong amount | `client.ts` | no |\\n\\nI wrote them down in `docs/payments.md`. The wrong amount needs a test.",
  "Read the payment client": "read src/client.ts\nsay `client.ts` returns declined cards as values and checks amounts.",
  "Read the retry logic": "read src/retry.ts\nread src/client.ts\nsay `retry.ts` repeats a timeout three times with the same key.",
  "Look for tests": "read README.md\nsay Declined cards and timeouts have tests; wrong amounts do not.",
  "Publish version 2.1": "read README.md\nbash npm publish --access public\nsay Published.",
  "Translate the handbook": "read handbook.md\nfail",
  "Rename the modules": "read README.md\nread src/client.ts\nread src/retry.ts\nsay Renamed.",
  "Review the checkout": "spawn code: Check the address form|Check the cart\nsay The checkout is sound; two labels are missing.",
  "Check the address form": "read README.md\nwait 900000\nsay fine",
  "Check the cart": "read src/client.ts\nbash npm run lint\nsay The cart is fine.",
};

const world = await World.create(binary, { delay: 220, scripts });
mkdirSync(join(world.project, "src"));
writeFileSync(join(world.project, "src/client.ts"), "export function pay(card: Card, amount: number): Result {\n  if (amount <= 0) return declined(\"amount\");\n  return send(card, amount);\n}\n");
writeFileSync(join(world.project, "src/retry.ts"), "export async function retry(call: () => Promise<Result>): Promise<Result> {\n  for (let attempt = 0; attempt < 3; attempt++) await call();\n}\n");
mkdirSync(join(world.project, ".homing/teams"));
writeFileSync(join(world.project, ".homing/teams/release.yaml"), `name: release
description: Prepares a release.
graph:
  start: plan
  nodes:
    - { name: plan, agent: explore, task: "Plan {{ task }}" }
    - { name: build, agent: code, task: "Build it" }
    - { name: review, agent: code-review, task: "Review it" }
    - { name: publish, agent: general, task: "Announce it" }
  edges:
    - { from: plan, to: build }
    - { from: plan, to: review }
    - { from: build, to: publish }
    - { from: review, to: publish }
`);
await world.cli("trust", "-y");
await world.serve();
await world.cli("team", ".homing/teams/release.yaml", "version 2.1");

const ended = async (task, more) => { const tree = await world.run(task, more); await world.ended(tree); return tree; };
const payments = await ended("Find out how payments fail");
const second = await ended("Find out how payments fail", { model: "demo/small" });
await ended("Translate the handbook into French");
await ended("Rename the modules to plain words", { limits: { turns: 2 } });
const map = world.start(["map", "--each", "-", "--max-children", "400", "Classify {{ item }} of the catalogue"], Array.from({ length: 240 }, (_, index) => `product ${index + 1}`).join("\n"));
map.stdout.resume();
map.stderr.resume();
await new Promise((done) => map.on("exit", done));
const catalogue = (await world.api("/api/trees")).trees.find((row) => row.agent === "map").tree;
await world.run("Publish version 2.1 to the registry");
const review = await world.run("Review the checkout before the release");
await until("questions", async () => (await world.api("/api/questions")).questions.length >= 2);

const browser = await chromium.launch({ executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium", args: ["--no-sandbox"] });
mkdirSync(folder, { recursive: true });

async function shoot(name, path, ready, { width = 1280, height = 800, dark = false, act } = {}) {
  const context = await browser.newContext({ viewport: { width, height }, colorScheme: dark ? "dark" : "light", reducedMotion: "reduce", timezoneId: "Europe/Zurich", locale: "en-GB" });
  const page = await context.newPage();
  await page.goto(world.link);
  await page.goto(world.url + path);
  await page.locator(ready).first().waitFor();
  if (act) await act(page);
  await page.waitForTimeout(400);
  await page.screenshot({ path: join(folder, `${name}.png`) });
  await context.close();
}

await shoot("home", "/", ".card.person");
await shoot("tree", `/trees/${payments}?run=${payments}`, ".transcript .call");
await shoot("live", `/trees/${review}`, ".card.person");
await shoot("map", `/trees/${catalogue}`, '[role="treeitem"]', { height: 420 });
await shoot("scrubber", `/trees/${payments}?at=16`, '[role="treeitem"]', { height: 420, dark: true });
await shoot("run", `/trees/${payments}/${payments}`, ".transcript .diff", { act: (page) => page.locator(".transcript .diff").first().scrollIntoViewIfNeeded() });
await shoot("compare", `/compare?a=${payments}/${payments}&b=${second}/${second}`, ".answers");
await shoot("start", "/new", "form", { height: 640 });
await shoot("agents", "/agents", ".agent-line", { height: 640 });
await shoot("agent", "/agents/code-review", "h2");
await shoot("team", "/teams/release", ".graph .n-done", { height: 360 });
await shoot("phone", `/trees/${review}`, '[role="treeitem"]', { width: 390, height: 844 });
await shoot("phone-home", "/", ".card.person", { width: 390, height: 844, dark: true });
await browser.close();
process.exit(0);
