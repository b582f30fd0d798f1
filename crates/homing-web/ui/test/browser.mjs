// R67: tests of the web interface in a real browser, against the real server: node browser.mjs HOMING [NAME]
import assert from "node:assert/strict";
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { cpus, loadavg } from "node:os";
import { join } from "node:path";
import { chromium } from "playwright-core";
import { until, World } from "./world.mjs";

const [binary, only] = process.argv.slice(2);
const axeSource = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
const EVIL = `<img src=x onerror="window.pwned=1"><script>window.pwned=1</script>"'\`[x](javascript:window.pwned=1)`;

const world = await World.create(binary);
await world.serve();
const browser = await chromium.launch({ executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium", args: ["--no-sandbox"] });

/** A page of a browser that is logged in. Errors and violations of the content security policy fail the test. */
async function open(path = "/", options = {}) {
  const context = await browser.newContext({ viewport: { width: 1440, height: 900 }, reducedMotion: "reduce", ...options });
  const page = await context.newPage();
  page.problems = [];
  page.on("pageerror", (error) => page.problems.push(error.message));
  page.on("console", (message) => { if (message.type() === "error" && !/Failed to load resource|ERR_CONNECTION|ERR_INCOMPLETE/.test(message.text())) page.problems.push(message.text()); });
  if (!options.stranger) await page.goto(world.link);
  if (path !== "/" || options.stranger) await page.goto(world.url + path);
  return page;
}

async function close(page) {
  assert.deepEqual(page.problems, [], "errors in the browser");
  await page.context().close();
}

async function accessible(page, what) {
  // The page's policy forbids inline scripts, so axe is evaluated by the debugger.
  await page.evaluate(axeSource);
  const { violations } = await page.evaluate(() => window.axe.run(document, { resultTypes: ["violations"] }));
  const serious = violations.filter(({ impact }) => impact === "serious" || impact === "critical");
  assert.deepEqual(serious.map(({ id, nodes }) => `${what}: ${id}: ${nodes[0].html.slice(0, 160)}`), []);
}

async function fits(page, what) {
  const over = await page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
  assert.ok(over <= 0, `${what} is ${over} pixels wider than the screen`);
}

const rows = (page) => page.locator('[role="treeitem"]').count();
const rootState = (page) => page.locator(".tree-head .state").innerText();

const tests = {
  async "a missing or wrong token is refused and explained"() {
    const stranger = await open("/", { stranger: true });
    assert.match(await stranger.locator("body").innerText(), /homing serve/);
    const response = await stranger.goto(`${world.url}/login?token=wrong`);
    assert.equal(response.status(), 401);
    assert.equal((await fetch(world.url + "/api/trees")).status, 401);
    assert.equal((await fetch(world.url + "/api/trees", { headers: { authorization: "Bearer wrong" } })).status, 401);
    await stranger.context().close();
  },

  async "the first visit teaches, and the token disappears from the address"() {
    const page = await open();
    await page.getByText("No runs yet").waitFor();
    assert.equal(new URL(page.url()).search, "");
    assert.match(await page.locator("main").innerText(), /homing run/);
    await accessible(page, "first visit");
    await close(page);
  },

  async "a run with three children appears live"() {
    const page = await open("/new");
    await page.getByRole("textbox", { name: "Task" }).fill("Look at three parts\nscript:\ndelegate 3 explore | read README.md | say part # is fine\nwrite notes.md one\\ntwo\\n\nsay **All** three are fine.");
    await page.getByRole("button", { name: "Plan first" }).click();
    await page.getByRole("heading", { name: "Plan" }).waitFor();
    assert.equal((await world.api("/api/trees")).trees.length, 0, "a plan starts nothing");
    await page.getByRole("button", { name: "Start", exact: true }).click();
    await page.waitForURL(/\/trees\//);
    await until("four rows", async () => (await rows(page)) === 4);
    await until("the end", async () => (await rootState(page)) === "done");
    const tree = page.url().split("/").pop();
    const row = await world.api(`/api/trees/${tree}`);
    const shown = await page.locator(".tree-head .facts").innerText();
    assert.match(shown, /4 runs/);
    const cost = (Math.round(row.usage.cost_micros / 100) / 1e4).toFixed(4).replace(/0{1,2}$/, "");
    assert.ok(shown.includes(`$${cost} of`), `${shown} shows the server's cost ${row.usage.cost_micros}`);
    await page.locator('[data-place="1"]').click();
    await page.locator(".transcript strong", { hasText: "All" }).first().waitFor();
    assert.match(await page.locator(".diff").first().innerText(), /\+one/);
    await accessible(page, "tree");
    tests.tree = tree;
    await close(page);
  },

  async "the scrubber shows the tree as it was"() {
    const page = await open(`/trees/${tests.tree}`);
    await until("four rows", async () => (await rows(page)) === 4);
    const range = page.getByLabel("Position in the history");
    await range.fill("2");
    await until("one row", async () => (await rows(page)) === 1);
    assert.equal(await rootState(page), "running");
    assert.match(page.url(), /at=2/);
    await page.reload();
    await until("the same after a reload", async () => (await rows(page)) === 1);
    await page.getByRole("button", { name: "Back to now" }).click();
    await until("four rows", async () => (await rows(page)) === 4);
    await close(page);
  },

  async "a question is answered and the run goes on, in two browsers"() {
    const [one, two] = [await open(), await open()];
    const tree = await world.run("Publish it\nscript:\nbash npm test\nsay Published.");
    for (const page of [one, two]) await page.locator(".card.person").waitFor();
    assert.match(await one.locator(".card.person").innerText(), /npm test/);
    assert.match(await one.locator(".card.person .command").innerText(), /homing answer/);
    await accessible(one, "inbox");
    await one.keyboard.press("a");
    await one.keyboard.press("Enter");
    for (const page of [one, two]) await until("no question", async () => (await page.locator(".card.person").count()) === 0);
    assert.equal((await world.ended(tree)).status, "done");
    for (const page of [one, two]) await page.locator("li.line", { hasText: "Publish it" }).locator(".s-done").first().waitFor();
    await close(one);
    await close(two);
  },

  async "a run is stopped by the keyboard"() {
    const tree = await world.run("Wait long\nscript:\ndelegate 2 explore | wait 60000 | say late");
    const page = await open(`/trees/${tree}`);
    await until("three rows", async () => (await rows(page)) === 3);
    await page.keyboard.press("x");
    const dialog = page.getByRole("dialog");
    assert.match(await dialog.innerText(), /Stop 3 runs/);
    assert.match(await dialog.innerText(), /homing cancel/);
    await dialog.getByRole("button", { name: "Stop 3 runs" }).click();
    await until("cancelled", async () => (await rootState(page)) === "cancelled");
    await close(page);
  },

  async "a reached limit is raised and the run goes on"() {
    const tree = await world.run("Rename\nscript:\nread README.md\nread README.md\nread README.md\nsay renamed", { limits: { turns: 2 } });
    assert.equal((await world.ended(tree)).status, "exhausted");
    const page = await open(`/trees/${tree}`);
    await page.getByRole("button", { name: "Raise limit and resume" }).click();
    const dialog = page.getByRole("dialog");
    assert.equal(await dialog.getByLabel("Limit").inputValue(), "turns");
    await dialog.getByRole("button", { name: "Raise and go on" }).click();
    await until("done", async () => (await rootState(page)) === "done");
    await close(page);
  },

  async "a limit card says what the next call may cost, and adds an amount"() {
    const tree = await world.run("Count the files\nscript:\nread README.md\nread README.md\nread README.md\nsay counted", { limits: { turns: 2 } });
    assert.equal((await world.ended(tree)).status, "exhausted");
    const page = await open();
    const card = page.locator(".card.stopped", { hasText: "Count the files" });
    assert.match(await card.innerText(), /The limit of 2 turns is reached\. The next call may cost up to \$0\.\d+/);
    await card.getByRole("button", { name: "Finish with what there is" }).waitFor();
    await card.getByRole("button", { name: "Add 20 turns and go on" }).click();
    await until("done", async () => (await world.api(`/api/trees/${tree}`)).status === "done");
    await until("the card goes", async () => (await card.count()) === 0);
    await close(page);
  },

  async "a running agent is told something, and its answer is continued in a fork"() {
    const tree = await world.run("Write a letter\nscript:\nread README.md\nwait 6000\nsay Dear shop");
    const page = await open(`/trees/${tree}?run=${tree}`);
    await page.locator(".tree-head").getByRole("button", { name: "Tell" }).click();
    const dialog = page.getByRole("dialog");
    await dialog.getByRole("textbox").fill("Mention the weather");
    assert.match(await dialog.innerText(), /homing tell/);
    await dialog.getByRole("button", { name: "Send" }).click();
    await until("the message", async () => /Mention the weather/.test(await page.locator(".transcript").innerText()));
    await until("the end", async () => (await rootState(page)) === "done");
    await page.locator(".transcript").getByRole("button", { name: "Fork" }).first().click();
    assert.match(await dialog.innerText(), /homing fork/);
    await dialog.getByRole("textbox").fill("Begin differently");
    await dialog.getByRole("button", { name: "Fork", exact: true }).click();
    await page.waitForURL((url) => !url.pathname.endsWith(tree));
    const fork = page.url().split("/").pop();
    assert.equal((await world.ended(fork)).status, "done");
    const told = async (id) => JSON.stringify(await world.api(`/api/trees/${id}/facts`)).includes("Begin differently");
    assert.deepEqual([await told(tree), await told(fork)], [false, true], "the fork was told, the first run was not");
    await close(page);
  },

  async "an interrupted run is resumed, and a call with an unknown outcome is settled"() {
    const plain = await world.run("Think long\nscript:\nwait 60000\nsay thought");
    const tree = await world.run("Deploy the site\nscript:\nbash echo begun && sleep 60\nsay Deployed.");
    await until("the command", async () => JSON.stringify(await world.api(`/api/trees/${tree}/facts`)).includes('"called"'));
    await world.kill();
    await world.serve();
    const page = await open();
    const card = page.locator(".card.stopped", { hasText: "Deploy the site" });
    assert.match(await card.innerText(), /It may have happened/);
    for (const name of ["It happened", "It did not", "Let the agent look"]) await card.getByRole("button", { name }).waitFor();
    await accessible(page, "unknown outcome");
    await card.getByRole("button", { name: "It happened" }).click();
    await until("the end", async () => (await world.api(`/api/trees/${tree}`)).status === "done");
    assert.match(JSON.stringify(await world.api(`/api/trees/${tree}/facts`)), /did happen; do not repeat it/);
    assert.equal((await world.api(`/api/trees/${plain}`)).status, "interrupted", "restarting resumes nothing by itself");
    await page.goto(`${world.url}/trees/${plain}`);
    assert.equal(await page.locator(".tree-head").getByRole("button", { name: "Tell" }).count(), 0, "nothing listens");
    await page.locator(".tree-head").getByRole("button", { name: "Resume" }).click();
    await until("running", async () => (await rootState(page)) === "running");
    await world.api(`/api/runs/${plain}/cancel`, {});
    await close(page);
  },

  async "an exported file shows the same view without a server"() {
    const file = join(world.folder, "export.html");
    await world.cli("export", tests.tree, "--format", "view", "-o", file);
    const context = await browser.newContext({ viewport: { width: 1440, height: 900 }, offline: true });
    const page = await context.newPage();
    page.problems = [];
    page.on("pageerror", (error) => page.problems.push(error.message));
    page.on("console", (message) => message.type() === "error" && page.problems.push(message.text()));
    await page.goto("file://" + file);
    await until("four rows", async () => (await rows(page)) === 4);
    assert.equal(await rootState(page), "done");
    await page.locator('[data-place="1"]').click();
    await page.locator(".transcript strong", { hasText: "All" }).first().waitFor();
    await page.getByLabel("Position in the history").fill("2");
    await until("one row", async () => (await rows(page)) === 1);
    await page.reload();
    await until("the same after a reload", async () => (await rows(page)) === 1);
    assert.equal(await page.getByRole("button", { name: /Stop|Tell|Resume|Fork/ }).count(), 0, "nothing can be done to it");
    await accessible(page, "exported file");
    await close(page);
  },

  async "a team's nodes show the states of their own runs"() {
    mkdirSync(join(world.project, ".homing/teams"), { recursive: true });
    const node = (name, steps) => `    - { name: ${name}, agent: explore, task: "${name}\\nscript:\\n${steps}" }`;
    writeFileSync(join(world.project, ".homing/teams/pair.yaml"), `name: pair\ngraph:\n  start: first\n  nodes:\n${node("first", "say one")}\n${node("second", "wait 3000\\nsay two")}\n  edges:\n    - { from: first, to: second }\n`);
    await world.cli("trust", "-y");
    const child = world.start(["team", ".homing/teams/pair.yaml", "go"]);
    child.stdout.resume();
    child.stderr.resume();
    await until("the team", async () => (await world.api("/api/trees")).trees.find((row) => row.agent === "pair"));
    const page = await open("/teams/pair");
    // Both nodes have the same agent.
    await page.locator(".node", { hasText: "first" }).and(page.locator(".n-done")).waitFor();
    await page.locator(".node", { hasText: "second" }).and(page.locator(".n-running")).waitFor();
    await page.locator(".node", { hasText: "second" }).and(page.locator(".n-done")).waitFor();
    await close(page);
  },

  async "two runs are compared"() {
    const other = await world.run("Look at one part\nscript:\nread README.md\nsay Fine.");
    await world.ended(other);
    const page = await open(`/compare?a=${tests.tree}/${tests.tree}&b=${other}/${other}`);
    await page.locator(".figures-table").waitFor();
    const text = await page.locator(".figures-table").innerText();
    for (const word of ["Cost", "Tool calls", "Runs below"]) assert.ok(text.includes(word), word);
    assert.match(await page.locator(".answers").innerText(), /Fine/);
    await accessible(page, "compare");
    await close(page);
  },

  async "agents are explained"() {
    const page = await open("/agents");
    await page.getByRole("link", { name: "general", exact: true }).click();
    await page.getByRole("heading", { name: "Tools" }).waitFor();
    await accessible(page, "agent");
    await close(page);
  },

  async "hostile text is inert in every field"() {
    const tree = await world.run(`${EVIL}\nscript:\ndelegate 1 explore | say ${EVIL}\nbash npm run '${EVIL.replaceAll("'", "")}'\nwrite evil.md ${EVIL}\nsay ${EVIL}`, { tags: { evil: EVIL.slice(0, 60) } });
    const page = await open();
    await page.locator(".card.person").waitFor();
    const inert = async (where) => {
      assert.equal(await page.evaluate(() => window.pwned), undefined, where);
      assert.equal(await page.locator('img[src="x"], #app script, a[href^="javascript"]').count(), 0, where);
    };
    await inert("inbox");
    await page.locator(".card.person").getByRole("button", { name: /^Deny/ }).click();
    await world.ended(tree);
    await page.goto(`${world.url}/trees/${tree}?run=${tree}`);
    await page.locator(".transcript .note").first().waitFor();
    await inert("transcript");
    await page.getByRole("button", { name: "Raw log" }).click();
    await page.locator(".raw details").first().click();
    await inert("raw log");
    await page.goto(`${world.url}/compare?a=${tree}/${tree}&b=${tree}/${tree}`);
    await page.locator(".answers").waitFor();
    await inert("compare");
    await page.goto(`${world.url}/?q=${encodeURIComponent(EVIL)}`);
    await page.locator("main").waitFor();
    await inert("filter");
    await close(page);
  },

  async "a killed and restarted server loses and repeats nothing"() {
    // Another process drives the run, so it goes on while the server is gone.
    const child = world.start(["run", "Walk slowly\nscript:\n" + Array.from({ length: 12 }, (_, index) => `bash echo step ${index}`).join("\n") + "\nsay arrived"]);
    child.stdout.resume();
    child.stderr.resume();
    const find = async () => (await world.api("/api/trees")).trees.find((row) => row.task.startsWith("Walk slowly"));
    const { tree } = await until("the run", find);
    const page = await open(`/trees/${tree}?run=${tree}`);
    await until("a few steps", async () => (await page.locator(".transcript .call").count()) >= 2);
    await world.kill();
    await page.getByText("Reconnecting…").waitFor();
    await world.serve();
    await until("the end", async () => (await rootState(page)) === "done", 30_000);
    await until("the last step", async () => /arrived/.test(await page.locator(".transcript").innerText()));
    const calls = await page.locator(".transcript .call summary .mono").allInnerTexts();
    assert.deepEqual(calls, Array.from({ length: 12 }, (_, index) => `echo step ${index}`));
    const { records } = await world.api(`/api/trees/${tree}/facts?from=0&limit=5000`);
    assert.match(await page.locator(".scrubber").innerText(), new RegExp(`${records.length} / ${records.length}`));
    await close(page);
  },

  async "a tree of 1,000 runs paints within a second and scrolls"() {
    const items = Array.from({ length: 1000 }, (_, index) => `item ${index}`).join("\n");
    const map = world.start(["map", "-m", "demo/fast", "--each", "-", "--max-children", "2000", "Classify {{ item }}"], items);
    map.stdout.resume();
    map.stderr.resume();
    await new Promise((done) => map.on("exit", done));
    const row = (await world.api("/api/trees")).trees.find((row) => row.agent === "map");
    const page = await open();
    const paint = async () => {
      const before = Date.now();
      await page.goto(`${world.url}/trees/${row.tree}`);
      await page.locator('[role="treeitem"]').first().waitFor();
      const first = Date.now() - before;
      await page.locator('[data-runs="1001"]').waitFor();
      complete.push(Date.now() - before);
      return first;
    };
    const complete = [];
    const times = [await paint(), await paint(), await paint()];
    await page.getByRole("button", { name: /Unfold 1000 runs/ }).click();
    const top = await page.evaluate(() => document.querySelector(".grid").getBoundingClientRect());
    assert.ok(top.top <= 120, `the rows begin at ${top.top} pixels`);
    assert.ok(top.height / 32 >= 20, `${top.height / 32} rows are on the screen`);
    // What the browser's compositor drew, not what the page counted.
    await browser.startTracing(page, { categories: ["-*", "devtools.timeline.frame", "disabled-by-default-devtools.timeline.frame", "blink.user_timing"] });
    const frames = await page.evaluate(async () => {
      const grid = document.querySelector(".grid");
      performance.mark("scroll-begins");
      const end = performance.now() + 1500;
      while (performance.now() < end) {
        await new Promise(requestAnimationFrame);
        grid.scrollTop += 90;
      }
      performance.mark("scroll-ends");
      return { top: grid.scrollTop, drawn: document.querySelectorAll('[role="treeitem"]').length };
    });
    const { traceEvents } = JSON.parse((await browser.stopTracing()).toString());
    const mark = (name) => traceEvents.find((event) => event.name === name)?.ts;
    const [begin, end] = [mark("scroll-begins"), mark("scroll-ends")];
    const drawn = traceEvents.filter((event) => event.name === "DrawFrame" && event.ts >= begin && event.ts <= end);
    frames.rate = drawn.length / ((end - begin) / 1e6);
    console.log(`  first paint ${times.join(", ")} ms, complete ${complete.join(", ")} ms, ${frames.rate.toFixed(0)} frames a second, ${frames.drawn} rows drawn`);
    assert.ok(frames.top > 1000, "it scrolled");
    assert.ok(frames.drawn < 120, "only rows on the screen are drawn");
    // On a machine that is busy with other work the figures say nothing about the page.
    const slack = loadavg()[0] > 3 * cpus().length ? 3 : 1;
    if (slack > 1) console.log(`  the machine is busy (load ${loadavg()[0].toFixed(0)}): ${slack} times as slow is accepted`);
    assert.ok(frames.rate >= 30 / slack, `${frames.rate} frames a second`);
    assert.ok(Math.min(...times) <= 1000 * slack, `first paint after ${Math.min(...times)} ms`);
    await close(page);
  },

  async "every page fits a phone, in the dark too, and keys work"() {
    const pages = ["/", "/new", "/agents", "/agents/general", `/trees/${tests.tree}`, `/trees/${tests.tree}/${tests.tree}`, `/compare?a=${tests.tree}/${tests.tree}`];
    const phone = await open("/", { viewport: { width: 390, height: 844 }, colorScheme: "dark" });
    for (const path of pages) {
      await phone.goto(world.url + path);
      await phone.locator("main > :not(.loading)").first().waitFor();
      await fits(phone, path);
      await accessible(phone, `${path} on a phone`);
    }
    await close(phone);
    const page = await open();
    await page.locator("li.line").first().waitFor();
    await page.keyboard.press("/");
    await page.keyboard.type("Look at three");
    await until("one line", async () => (await page.locator("li.line").count()) === 1);
    await page.keyboard.press("Escape");
    await page.keyboard.press("j");
    await page.keyboard.press("Enter");
    await page.waitForURL(/\/trees\//);
    await until("rows", async () => (await rows(page)) === 4);
    await page.keyboard.press("j");
    await page.locator(".detail").waitFor();
    await page.keyboard.press("ArrowLeft");
    await until("folded", async () => (await rows(page)) === 1);
    await page.keyboard.press("ArrowRight");
    await until("unfolded", async () => (await rows(page)) === 4);
    await page.keyboard.press("Enter");
    await page.locator(".run-page .crumbs").waitFor();
    await close(page);
  },
};

let failed = 0;
for (const [name, test] of Object.entries(tests)) {
  if (typeof test !== "function" || (only && !name.includes(only) && !name.includes("three children"))) continue;
  const start = Date.now();
  try {
    await test();
    console.log(`ok    ${name} (${((Date.now() - start) / 1000).toFixed(1)} s)`);
  } catch (error) {
    failed++;
    console.log(`FAIL  ${name}\n${error.stack}`);
    for (const context of browser.contexts()) {
      if (process.env.SHOTS) for (const page of context.pages()) await page.screenshot({ path: `${process.env.SHOTS}/fail-${failed}.png` }).catch(() => {});
      await context.close();
    }
  }
}
await browser.close();
console.log(failed ? `${failed} failed` : "the web interface works");
process.exit(failed ? 1 : 0);
