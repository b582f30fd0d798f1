//! The program of a graph: it replays the graph from the start through the history, until it reaches work that is open.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use homing_core::{
    message::{FNV_START, fnv},
    registry::Registry,
};
use serde_json::{Map as Object, Value, json};

use crate::{
    crew::OnTaskFailure,
    failed,
    graph::{
        END, Edge, FieldType, Graph, Node, Work, state,
        values::{Writers, spread_value, tool_args, tool_value},
    },
    history::{History, JobResult, JobState},
    program::{DelegateCall, Move, TeamCall, TeamScript},
    source::TeamSource,
    team::{Team, TemplateScope},
    template,
};

/// The argument of `bash` with the command.
pub(crate) const COMMAND: &str = "command";

pub(crate) struct GraphScript {
    graph: Graph,
    scope: TemplateScope,
    source: TeamSource,
    nodes: HashMap<String, usize>,
    /// Positions of the edges out of each node, in file order.
    out: HashMap<String, Vec<usize>>,
    /// The failures that the condition of each edge refers to, by the position of the edge.
    refers_to: Vec<Failures>,
    /// True for the nodes whose agent answers with data, because the node or the agent has a schema.
    gives_data: Vec<bool>,
}

/// The failures that a condition refers to.
#[derive(Clone, Debug, Default)]
struct Failures {
    /// True if the condition uses `failures` as a whole.
    all: bool,
    /// Nodes whose failures it names.
    of: BTreeSet<String>,
}

/// The progress of a walk through the graph.
struct Walk {
    state: Object<String, Value>,
    failures: Object<String, Value>,
    /// Failed parts that no edge has handled, by node.
    unhandled: BTreeMap<String, Vec<String>>,
    frontier: Vec<usize>,
    taken: HashMap<usize, u32>,
    arrived: HashMap<usize, BTreeSet<String>>,
    last_words: Vec<String>,
    step: u32,
}

/// The results of one node.
struct NodeResult {
    node: usize,
    jobs: Vec<JobResult>,
}

impl GraphScript {
    pub(crate) fn new(graph: &Graph, team: &Team, registry: &Registry) -> Self {
        let nodes = graph.nodes.iter().enumerate().map(|(at, node)| (node.name.clone(), at)).collect();
        let mut out: HashMap<String, Vec<usize>> = HashMap::new();
        for (at, edge) in graph.edges.iter().enumerate() {
            out.entry(edge.from.clone()).or_default().push(at);
        }
        let refers_to = graph.edges.iter().map(Failures::in_condition_of).collect();
        let has_schema = |node: &Node| match node.work() {
            Some(Work::Agent(name)) => registry.get(name).is_ok_and(|agent| agent.task.schema.is_some()),
            Some(Work::Tool(_) | Work::OneOf(_) | Work::Race(_)) | None => false,
        };
        let gives_data = graph.nodes.iter().map(|node| node.schema.is_some() || has_schema(node)).collect();
        let (scope, source) = (team.scope(), team.source.clone());
        Self { graph: graph.clone(), scope, source, nodes, out, refers_to, gives_data }
    }

    /// Walks as far as the history goes. Returns the calls to make there, or `None` at the end.
    fn walk(&self, history: &History<'_>) -> (Walk, Result<Option<Vec<TeamCall>>, String>) {
        let mut walk = Walk {
            state: state::initial(&self.graph, history.earlier.as_ref().map(|turn| turn.results)),
            failures: Object::new(),
            unhandled: BTreeMap::new(),
            frontier: self.nodes.get(&self.graph.start).copied().into_iter().collect(),
            taken: HashMap::new(),
            arrived: HashMap::new(),
            last_words: Vec::new(),
            step: 0,
        };
        while !walk.frontier.is_empty() {
            match self.step(&mut walk, history) {
                Ok(calls) if calls.is_empty() => (),
                Ok(calls) => return (walk, Ok(Some(calls))),
                Err(why) => return (walk, Err(why)),
            }
        }
        (walk, Ok(None))
    }

    /// The number of steps that are finished.
    pub(crate) fn steps(&self, history: &History<'_>) -> u32 {
        self.walk(history).0.step
    }

    /// The message of an error at a node, with its line.
    fn at_node(&self, at: usize, why: &str) -> String {
        let source = self.source.at(&format!("graph.nodes[{at}]"));
        format!("{source}node `{}`: {why}", self.graph.nodes[at].name)
    }

    /// Executes one step: all nodes of the frontier, then the state and the frontier change. Returns the calls that are open.
    fn step(&self, walk: &mut Walk, history: &History<'_>) -> Result<Vec<TeamCall>, String> {
        if walk.step >= self.graph.max_steps {
            let source = self.source.at("graph");
            return Err(format!("{source}the graph took {} steps without reaching its end", walk.step));
        }
        for set in self.graph.set.iter().filter(|set| set.step == walk.step) {
            for (name, value) in &set.values {
                state::set(&self.graph, &mut walk.state, name, value.clone())?;
            }
        }
        let (mut open, mut results) = (Vec::new(), Vec::new());
        for at in &walk.frontier {
            let node = &self.graph.nodes[*at];
            let (calls, jobs) = self.work(node, walk, history).map_err(|why| self.at_node(*at, &why))?;
            open.extend(calls);
            results.push(NodeResult { node: *at, jobs });
        }
        if !open.is_empty() {
            return Ok(open);
        }
        walk.last_words = results
            .iter()
            .flat_map(|result| &result.jobs)
            .filter(|job| job.is_done())
            .map(|job| job.output.clone())
            .collect();
        let mut writers = Writers::default();
        for result in &results {
            count_failures(&self.graph.nodes[result.node], &result.jobs, walk)?;
            self.update_state(result, walk, &mut writers).map_err(|why| self.at_node(result.node, &why))?;
        }
        self.advance(walk, &history.task)?;
        walk.step += 1;
        Ok(Vec::new())
    }

    /// The node's calls that are open, and the results of those that have ended.
    fn work(&self, node: &Node, walk: &Walk, history: &History<'_>) -> Result<(Vec<TeamCall>, Vec<JobResult>), String> {
        let items = match &node.each {
            None => vec![None],
            Some(list) => match template::evaluate(list, &self.scope_of(walk, &history.task, None))? {
                Value::Array(items) => items.into_iter().enumerate().map(Some).collect(),
                other => return Err(format!("`each` must be a list, not {other}")),
            },
        };
        let (mut open, mut over) = (Vec::new(), Vec::new());
        for item in items {
            let index = item.as_ref().map_or(0, |(index, _)| *index);
            if let Some(Work::Race(quorum)) = node.work() {
                let id = format!("race/{}/{}/{index}", walk.step, node.name);
                let scope = self.scope_of(walk, &history.task, item);
                let (calls, done) = self.race(node, quorum, &id, history, &scope)?;
                open.extend(calls);
                over.extend(done);
                continue;
            }
            match history.job(&self.job_id(node, walk, history, item.as_ref())?, node.retries) {
                JobState::Ended(done) => over.push(done),
                JobState::Running { place } => return Err(format!("run {place} is still running")),
                JobState::Open { id } => open.push(self.call(node, id, &self.scope_of(walk, &history.task, item))?),
            }
        }
        Ok((open, over))
    }

    /// The ID of a job: of its step, or, at a node with a cache, of its task.
    fn job_id(
        &self,
        node: &Node,
        walk: &Walk,
        history: &History<'_>,
        item: Option<&(usize, Value)>,
    ) -> Result<String, String> {
        let index = item.map_or(0, |(index, _)| *index);
        if !node.cache {
            return Ok(format!("node/{}/{}/{index}", walk.step, node.name));
        }
        let call = self.call(node, String::new(), &self.scope_of(walk, &history.task, item.cloned()))?;
        Ok(format!("cached/{}/{:016x}", node.name, fnv(FNV_START, call.args.to_string().as_bytes())))
    }

    fn scope_of(&self, walk: &Walk, task: &str, item: Option<(usize, Value)>) -> Value {
        let item = item.map(|(index, item)| [("item", item), ("index", json!(index))]);
        let always = [("state", json!(walk.state)), ("failures", json!(walk.failures)), ("step", json!(walk.step))];
        self.scope.with(task, always.into_iter().chain(item.into_iter().flatten()))
    }

    fn call(&self, node: &Node, id: String, scope: &Value) -> Result<TeamCall, String> {
        match node.work() {
            Some(Work::Agent(agent)) => {
                let task = template::render(&node.task, scope)?;
                let (schema, limits) = (node.schema.as_ref(), &node.limits);
                Ok(DelegateCall { agent, task, schema, limits, background: false }.call(id))
            }
            Some(Work::OneOf(template)) => {
                let agent = template::render(template, scope)?;
                let agent = agent.trim();
                if !node.agents.names().iter().any(|name| name == agent) {
                    return Err(format!("`{agent}` is not one of the agents {}", node.agents.names().join(", ")));
                }
                let task = template::render(&node.task, scope)?;
                let (schema, limits) = (node.schema.as_ref(), &node.limits);
                Ok(DelegateCall { agent, task, schema, limits, background: false }.call(id))
            }
            Some(Work::Tool(tool)) => {
                let args = match tool_args(tool, &node.args, scope)? {
                    Value::Null => json!({}),
                    args => args,
                };
                Ok(TeamCall { id, tool: tool.to_owned(), args })
            }
            Some(Work::Race(_)) | None => Err("the node has no agent, team or tool".to_owned()),
        }
    }

    /// Puts the results of a node into the state.
    fn update_state(&self, result: &NodeResult, walk: &mut Walk, writers: &mut Writers) -> Result<(), String> {
        let node = &self.graph.nodes[result.node];
        let done = || result.jobs.iter().filter(|job| job.is_done());
        let mut put = |field: &str, value: Value| {
            writers.note(&self.graph, field, &node.name)?;
            state::put(&self.graph, &mut walk.state, field, value)
        };
        let Some(field) = &node.writes else {
            // A structured result sets the fields of the same names.
            for value in done().map(spread_value) {
                let Value::Object(fields) = value else { continue };
                let known = fields.into_iter().filter(|(name, _)| self.graph.state.contains_key(name));
                known.into_iter().try_for_each(|(name, value)| put(&name, value))?;
            }
            return Ok(());
        };
        let kind = self.graph.state.get(field).map(|field| field.kind).unwrap_or_default();
        let many = node.each.is_some() || node.agents.first().is_some_and(|quorum| quorum > 1);
        let item_kind = if many { FieldType::Any } else { kind };
        let values = done().map(|job| self.value(result.node, job, item_kind));
        if many { put(field, values.collect()) } else { values.into_iter().try_for_each(|value| put(field, value)) }
    }

    /// The value that a job writes into a field of this type.
    fn value(&self, node: usize, job: &JobResult, kind: FieldType) -> Value {
        if job.is_of_tool() {
            return tool_value(job, kind);
        }
        let data = job.data.clone().filter(|_| self.gives_data[node]);
        data.unwrap_or_else(|| json!(job.output))
    }

    /// Follows the edges out of the frontier.
    fn advance(&self, walk: &mut Walk, task: &str) -> Result<(), String> {
        let scope = self.scope_of(walk, task, None);
        let mut next: Vec<usize> = Vec::new();
        for at in std::mem::take(&mut walk.frontier) {
            let from = &self.graph.nodes[at].name;
            let chosen = self.choose(from, walk, &scope)?;
            self.handle(from, &chosen, walk);
            for edge in chosen {
                *walk.taken.entry(edge).or_default() += 1;
                let Some(to) = self.nodes.get(&self.graph.edges[edge].to).copied() else { continue };
                if self.may_begin(to, from, walk) && !next.contains(&to) {
                    next.push(to);
                }
            }
        }
        walk.frontier = next;
        self.release_joins(walk);
        Ok(())
    }

    /// Starts the joins that no other branch can reach any more: they continue with the branches that were taken.
    fn release_joins(&self, walk: &mut Walk) {
        loop {
            let mut waiting: Vec<usize> = walk
                .arrived
                .iter()
                .filter(|(at, arrived)| self.still_waits(**at, arrived))
                .map(|(at, _)| *at)
                .collect();
            waiting.sort_unstable();
            let ready = waiting.iter().copied().find(|join| {
                let others = waiting.iter().filter(|other| *other != join);
                let reachable = self.reachable(walk.frontier.iter().chain(others));
                let node = &self.graph.nodes[*join];
                let arrived = walk.arrived.get(join);
                let missing =
                    node.join.names().iter().filter(|name| arrived.is_none_or(|arrived| !arrived.contains(*name)));
                missing.into_iter().all(|name| !reachable.contains(name.as_str()))
            });
            // Joins that wait for each other would wait for ever.
            let stuck = waiting.first().copied().filter(|_| walk.frontier.is_empty());
            let Some(join) = ready.or(stuck) else { return };
            walk.arrived.remove(&join);
            if !walk.frontier.contains(&join) {
                walk.frontier.push(join);
            }
        }
    }

    /// Returns whether a join has branches that arrived, but has not started with them.
    fn still_waits(&self, join: usize, arrived: &BTreeSet<String>) -> bool {
        !arrived.is_empty() && arrived.len() < self.graph.nodes[join].join.needed()
    }

    /// The nodes that these nodes are or lead to.
    fn reachable<'a>(&'a self, from: impl Iterator<Item = &'a usize>) -> HashSet<&'a str> {
        let mut open: Vec<&str> = from.map(|at| self.graph.nodes[*at].name.as_str()).collect();
        let mut found: HashSet<&str> = open.iter().copied().collect();
        while let Some(name) = open.pop() {
            let next = self.out.get(name).into_iter().flatten().map(|edge| self.graph.edges[*edge].to.as_str());
            open.extend(next.filter(|next| found.insert(next)));
        }
        found
    }

    /// The edges that are taken: all whose condition holds, or else the `else` edges.
    fn choose(&self, from: &str, walk: &Walk, scope: &Value) -> Result<Vec<usize>, String> {
        let open = self.open_edges(from, walk);
        let mut chosen = Vec::new();
        for at in &open {
            let edge = &self.graph.edges[*at];
            if !edge.otherwise && holds(edge, scope).map_err(|why| self.at_edge(*at, &why))? {
                chosen.push(*at);
            }
        }
        if chosen.is_empty() {
            chosen.extend(open.into_iter().filter(|at| self.graph.edges[*at].otherwise));
        }
        Ok(chosen)
    }

    fn at_edge(&self, at: usize, why: &str) -> String {
        format!("{}edge {:?}: {why}", self.source.at(&format!("graph.edges[{at}]")), self.graph.edges[at])
    }

    /// The edges out of a node that have not reached their limit.
    fn open_edges(&self, from: &str, walk: &Walk) -> Vec<usize> {
        let out = self.out.get(from).map_or(&[][..], Vec::as_slice);
        let open = |at: &usize| {
            let taken = walk.taken.get(at).copied().unwrap_or(0);
            self.graph.edges[*at].limit.is_none_or(|limit| taken < limit)
        };
        out.iter().copied().filter(open).collect()
    }

    /// Removes the failures that the chosen edges handle: those that their conditions refer to. An `else` edge also handles
    /// the failures in the conditions beside it that did not hold. The condition of an edge that has reached its limit does
    /// not count: if the way back is closed and the rest continues, the failure still counts.
    fn handle(&self, from: &str, chosen: &[usize], walk: &mut Walk) {
        let open = self.open_edges(from, walk);
        let mut handling: Vec<usize> = chosen.to_vec();
        if chosen.iter().any(|at| self.graph.edges[*at].otherwise) {
            handling.extend(open);
        }
        let all = handling.iter().any(|at| self.refers_to[*at].all);
        let is_handled = |name: &String| all || handling.iter().any(|at| self.refers_to[*at].of.contains(name));
        walk.unhandled.retain(|name, _| !is_handled(name));
    }

    fn may_begin(&self, to: usize, from: &str, walk: &mut Walk) -> bool {
        let join = &self.graph.nodes[to].join;
        if join.names().is_empty() {
            return true;
        }
        let arrived = walk.arrived.entry(to).or_default();
        let is_new = arrived.insert(from.to_owned());
        let begins = is_new && arrived.len() == join.needed();
        // Those that arrive later do not start the node again.
        if arrived.len() == join.names().len() {
            arrived.clear();
        }
        begins
    }

    fn answer(&self, walk: &Walk, task: &str) -> Move {
        let Some(output) = &self.graph.output else {
            return Move::Answer { text: walk.last_words.join("\n\n"), data: None };
        };
        match template::render(output, &self.scope_of(walk, task, None)) {
            Ok(text) => Move::Answer { text, data: None },
            Err(why) => Move::Fail { why: format!("{}output: {why}", self.source.at("graph.output")) },
        }
    }
}

/// Records what a node did not deliver; an error ends the graph.
fn count_failures(node: &Node, jobs: &[JobResult], walk: &mut Walk) -> Result<(), String> {
    let failed = || jobs.iter().enumerate().filter(|(_, job)| !job.is_done());
    let under =
        |policy| failed().filter(move |(_, job)| failed::policy(node.on_failure, job) == policy).collect::<Vec<_>>();
    let (fatal, reported) = (under(OnTaskFailure::Fail), under(OnTaskFailure::Report));
    if !fatal.is_empty() {
        return Err(failed::listed(&parts(node, &fatal)));
    }
    if let Some((_, first)) = reported.first() {
        walk.failures.insert(node.name.clone(), json!(first.why()));
        walk.unhandled.insert(node.name.clone(), parts(node, &reported));
    } else if failed().next().is_none() {
        walk.failures.remove(&node.name);
        walk.unhandled.remove(&node.name);
    }
    Ok(())
}

/// The parts of a node that did not deliver: the node itself, or items of its list.
fn parts(node: &Node, failed: &[(usize, &JobResult)]) -> Vec<String> {
    let name = |at: &usize| match node.each {
        Some(_) => format!("node `{}`, item {at}", node.name),
        None => format!("node `{}`", node.name),
    };
    failed.iter().map(|(at, done)| failed::part(&name(at), done)).collect()
}

impl Failures {
    fn in_condition_of(edge: &Edge) -> Self {
        let names = edge.when.as_deref().and_then(|condition| template::names_in_condition(condition).ok());
        let mut found = Self::default();
        for name in names.unwrap_or_default() {
            let mut path = name.split('.');
            match (path.next(), path.next()) {
                (Some("failures"), Some(node)) => {
                    found.of.insert(node.to_owned());
                }
                (Some("failures"), None) => found.all = true,
                (Some(_), _) | (None, _) => (),
            }
        }
        found
    }
}

fn holds(edge: &Edge, scope: &Value) -> Result<bool, String> {
    let state = scope.get("state").unwrap_or(&Value::Null);
    let in_code = edge.test.as_ref().is_none_or(|test| test(state));
    let in_words = edge.when.as_deref().map_or(Ok(true), |condition| template::holds(condition, scope))?;
    Ok(in_code && in_words)
}

impl TeamScript for GraphScript {
    fn next(&self, history: &History<'_>) -> Move {
        let (walk, outcome) = self.walk(history);
        let failed: Vec<String> = walk.unhandled.values().flatten().cloned().collect();
        match outcome {
            // An earlier failure may be the reason why it cannot continue.
            Err(why) => {
                let all: Vec<String> = [why].into_iter().chain(failed).collect();
                Move::Fail { why: failed::listed(&all) }
            }
            Ok(None) if !failed.is_empty() => Move::Fail { why: failed::listed(&failed) },
            Ok(None) => self.answer(&walk, &history.task),
            Ok(Some(calls)) => {
                let names: Vec<&str> = calls.iter().map(|call| call.id.as_str()).collect();
                Move::Act { words: format!("Next: {}", names.join(", ")), calls }
            }
        }
    }

    fn results(&self, history: &History<'_>) -> Value {
        Value::Object(self.walk(history).0.state)
    }

    fn so_far(&self, history: &History<'_>) -> String {
        let (walk, outcome) = self.walk(history);
        // A graph that reached its end keeps the answer, even if a part of it failed.
        if let (Ok(None), Move::Answer { text, .. }) = (outcome, self.answer(&walk, &history.task))
            && !text.trim().is_empty()
        {
            return text;
        }
        let state = serde_json::to_string_pretty(&walk.state).unwrap_or_default();
        format!("The state after {} steps:\n{state}", walk.step)
    }
}

/// Returns whether a name stands for the end and not for a node.
pub(crate) fn is_end(name: &str) -> bool {
    name == END
}
