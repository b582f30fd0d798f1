// The functions that a workflow script calls. Evaluated before the script, in the same context; it returns what the host calls.
// `args` is the JSON text of the arguments, `total` the token budget (0 if there is none).
(args, total) => {
  'use strict';
  const MAX_AGENTS = 1000;
  const MAX_ITEMS = 4096;
  const { parse, stringify } = JSON;
  const { freeze, defineProperty, keys } = Object;
  const { isArray } = Array;
  const all = Promise.allSettled.bind(Promise);
  const text = String;
  const global = globalThis;

  // Agents that the script has asked for, their promises, and what it has said.
  const calls = [], promises = [], logs = [], failures = [];
  let settled = 0, spent = 0, phase, end;

  class WorkflowAgentCapError extends Error {
    get name() { return 'WorkflowAgentCapError' }
  }
  class WorkflowBudgetExceededError extends Error {
    get name() { return 'WorkflowBudgetExceededError' }
  }

  const log = message => { logs[logs.length] = { after: settled, text: printed(message) } };
  const fail = message => { failures[failures.length] = message; log(message) };

  function printed(value) {
    if (typeof value === 'string') return value;
    try {
      const json = stringify(value);
      if (json !== undefined && json !== '{}') return json;
      return text(value);
    } catch { return `[${typeof value}]` }
  }

  const ready = () => {
    if (calls.length >= MAX_AGENTS) {
      throw new WorkflowAgentCapError(`the script has started ${MAX_AGENTS} agents, which is the maximum`);
    }
    if (total > 0 && spent >= total) {
      throw new WorkflowBudgetExceededError(`the token budget is used up (${spent} of ${total})`);
    }
  };

  const start = call => new Promise((resolve, reject) => {
    const index = calls.length;
    calls[index] = call;
    promises[index] = { resolve, reject };
  });

  const optional = (options, name, kinds) => {
    const value = options[name];
    if (value === undefined || value === null) return undefined;
    if (!kinds.includes(typeof value)) throw new TypeError(`agent(): opts.${name} cannot be a ${typeof value}`);
    return value;
  };

  async function agent(prompt, options) {
    ready();
    const opts = options === undefined || options === null ? {} : parse(stringify(options) ?? '{}');
    const task = text(prompt);
    if (!task.trim()) throw new TypeError('agent(): the prompt is empty');
    if (opts.isolation !== undefined && opts.isolation !== null && opts.isolation !== 'worktree') {
      throw new Error(`agent(): isolation '${opts.isolation}' is not available, only 'worktree'`);
    }
    // A restriction that is not understood must not be dropped.
    if (opts.bashCommandClamp !== undefined) throw new Error('agent(): opts.bashCommandClamp is not available');
    const deny = opts.disallowedTools ?? [];
    if (!isArray(deny) || !deny.every(name => typeof name === 'string' && name && name === name.trim())) {
      throw new TypeError('agent(): opts.disallowedTools must be an array of tool names');
    }
    const label = opts.label === undefined || opts.label === null ? task.slice(0, 60) : text(opts.label);
    return start({
      task, label: label.replace(/\s+/g, ' ').trim(), phase: optional(opts, 'phase', ['string']) ?? phase,
      schema: optional(opts, 'schema', ['object']), agent: optional(opts, 'agentType', ['string']),
      model: optional(opts, 'model', ['string']), effort: optional(opts, 'effort', ['string']),
      isolation: opts.isolation ?? undefined, deny: deny.length ? deny : undefined,
    });
  }

  async function workflow(name, value) {
    ready();
    if (typeof name !== 'string') throw new TypeError('workflow() expects the name of a workflow');
    const task = typeof value === 'string' && value.trim() ? value : stringify(value ?? null);
    return start({ task, label: `workflow ${name}`, phase, agent: name, workflow: true });
  }

  // Results with the reasons of what failed: an item that failed is null.
  const results = (kind, ended) => {
    let dropped = 0;
    const values = ended.map((each, at) => {
      if (each.status === 'fulfilled') return each.value;
      if (each.reason instanceof WorkflowBudgetExceededError) dropped++;
      else fail(`${kind}[${at}] failed: ${message(each.reason)}`);
      return null;
    });
    if (dropped) failures[failures.length] = `${kind}: ${dropped} dropped, because the token budget is used up`;
    return values;
  };

  const list = (kind, items) => {
    if (!isArray(items)) throw new TypeError(`${kind}() expects an array`);
    if (items.length > MAX_ITEMS) throw new RangeError(`${kind}() accepts at most ${MAX_ITEMS} items, not ${items.length}`);
    if (items.length) ready();
    return Array.from(items);
  };

  async function parallel(thunks) {
    const tasks = list('parallel', thunks);
    if (!tasks.every(task => typeof task === 'function')) {
      throw new TypeError('parallel() expects an array of functions, not promises: wrap each call, () => agent(...)');
    }
    return results('parallel', await all(tasks.map(async task => task())));
  }

  async function pipeline(items, ...stages) {
    const each = list('pipeline', items);
    if (!stages.every(stage => typeof stage === 'function')) {
      throw new TypeError('pipeline() stages must be functions: pipeline(items, item => ..., result => ...)');
    }
    const through = async (item, index) => {
      let value = await item;
      for (const stage of stages) {
        if (value === null) break;
        value = await stage(value, item, index);
      }
      return value;
    };
    return results('pipeline', await all(each.map(through)));
  }

  const message = reason => {
    try { return reason instanceof Error ? text(reason.message) : printed(reason) } catch { return 'unknown' }
  };

  const described = reason => {
    try {
      if (!(reason instanceof Error)) return { message: `the script threw ${printed(reason)}` };
      return { message: `${reason.name}: ${reason.message}`, stack: text(reason.stack ?? '') };
    } catch { return { message: 'the script threw a value that cannot be printed' } }
  };

  const finish = value => {
    if (typeof value === 'function') { end = { error: { message: 'the result of a script cannot be a function' } }; return }
    try { end = { value: parse(stringify(value) ?? 'null') } } catch (error) { end = { error: described(error) } }
  };

  // Nothing that differs from one execution to the next, and no code from text.
  const forbid = (target, name, why) => defineProperty(target, name, { value: () => { throw new Error(why) } });
  const now = 'the time is not available in workflow scripts, because a resumed script must decide the same: pass it in args';
  forbid(Math, 'random', 'Math.random() is not available in workflow scripts, because a resumed script must decide the same: vary the prompt by the index');
  const RealDate = Date;
  function ScriptDate(...values) {
    if (!new.target || values.length === 0) throw new Error(now);
    return Reflect.construct(RealDate, values, new.target);
  }
  forbid(RealDate, 'now', now);
  forbid(ScriptDate, 'now', now);
  ScriptDate.parse = RealDate.parse;
  ScriptDate.UTC = RealDate.UTC;
  ScriptDate.prototype = RealDate.prototype;
  RealDate.prototype.constructor = ScriptDate;
  freeze(RealDate);
  global.Date = ScriptDate;
  const makers = [function () {}, async function () {}, function* () {}, async function* () {}];
  for (const made of makers) {
    const refuse = function () { throw new EvalError('code from text is not available in workflow scripts') };
    refuse.prototype = Object.getPrototypeOf(made);
    defineProperty(refuse.prototype, 'constructor', { value: refuse });
  }
  global.Function = Object.getPrototypeOf(makers[0]).constructor;
  for (const name of ['eval', 'WeakRef', 'FinalizationRegistry', 'SharedArrayBuffer', 'Atomics', 'performance']) delete global[name];

  const speak = prefix => (...values) => log(prefix + values.map(printed).join(' '));
  const provided = {
    agent, parallel, pipeline, workflow,
    log,
    phase: title => { phase = text(title) },
    args: parse(args),
    budget: freeze({
      total: total > 0 ? total : null,
      spent: () => spent,
      remaining: () => total > 0 ? Math.max(0, total - spent) : Infinity,
    }),
    console: freeze({
      log: speak(''), info: speak(''), debug: speak(''), warn: speak('[warn] '), error: speak('[error] '),
    }),
  };
  for (const name of keys(provided)) global[name] = provided[name];

  return {
    // Starts the script.
    run: script => { script().then(finish, reason => { end = { error: described(reason) } }) },
    // Tells the script how an agent ended.
    settle: (index, json) => {
      const ending = parse(json), { resolve, reject } = promises[index];
      settled++;
      spent += ending.tokens;
      const { label, workflow } = calls[index], { refused, failed } = ending;
      if (refused !== undefined) reject(new Error(refused));
      else if (failed !== undefined && workflow) { failures[failures.length] = `${label}: ${failed}`; reject(new Error(failed)) }
      else if (failed !== undefined) { fail(`[${label}] failed: ${failed}`); resolve(null) }
      else resolve(workflow && isArray(ending.value?.logs) ? ending.value.result : ending.value);
    },
    count: () => calls.length,
    call: index => {
      const { task, schema, agent, model, effort, isolation, deny, workflow } = calls[index];
      return stringify({ ...calls[index], asked: stringify([task, schema, agent, model, effort, isolation, deny, workflow]) });
    },
    state: () => stringify({ end, logs, failures, agents: calls.length }),
  };
}
