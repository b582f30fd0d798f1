//! Decides what a new run starts with: prompt, models, limits, authority, folder and tools.

use std::{collections::BTreeMap, sync::Arc};

use homing_core::{
    authority::{Allow, Authority, Decision, Grant},
    definition::{AgentDefinition, Inherit, Isolation, ModelChoice},
    fact::Spawned,
    limits::{Cap, Limits},
    message::{Attachment, Message},
    model::Effort,
    rule::Rule,
    run::shared,
    tool::{Effect, Replay, Tool, ToolSpec},
    tool_names,
    workspace::Workspace,
};
use serde_json::Value;
use uuid::Uuid;

use crate::{
    agent_memory,
    cost_limit::{enforceable_limits, explicit_cost},
    delegation, fork,
    live_run::LiveRun,
    live_tree::LiveTree,
    observers, prompt,
    run_tools::{AgentTools, RunTools},
    runtime::{Inner, RuntimeParts, SpawnError, SpawnOrder},
    skill_use,
    spawn_cache::SpawnCache,
    task::Task,
};

impl Inner {
    /// The first fact of a root.
    pub(crate) fn root_spawned(&self, task: &Task) -> Result<Spawned, SpawnError> {
        let agent = root_agent(&self.parts, task)?;
        let context = with_parameters(&agent, task.context.clone());
        if let Some(missing) = missing_parameters(&agent, &context).next() {
            return Err(SpawnError::MissingParameter { agent: agent.name.clone(), parameter: missing.to_owned() });
        }
        let text = match (task.text.trim(), &agent.task.initial_prompt) {
            ("", Some(initial)) => prompt::fill(initial, "", &context),
            ("", None) => return Err(SpawnError::EmptyTask),
            _ => task.text.clone(),
        };
        let choice = task.model.clone().map_or_else(|| agent.model.choice.clone(), ModelChoice::Exact);
        let resolved = self.parts.models.resolve(&choice, None).map_err(SpawnError::NoModel)?;
        reads_attachments(&self.parts, &resolved.names, &task.attachments)?;
        let requested = task.limits.or(agent.limits);
        let limits = requested.or(Limits::root());
        let (limits, unpriced) = enforceable_limits(&self.parts, limits, requested.cost_micros, &resolved)?;
        let mut warnings = task.warnings.clone();
        warnings.extend(unpriced);
        let workdir = task.workdir.clone().unwrap_or_else(|| self.parts.workdir.clone());
        let authority = agent_memory::granted(&self.parts, &agent, root_authority(self, task, &agent));
        let prompt_context = (self.parts.prompt_context)(&workdir);
        let (system, missing) = prompt::render(&agent, &text, &context, self.parts.skills.as_deref(), &prompt_context);
        let system = with_section(system, agent_memory::section(&self.parts, &agent));
        warnings.extend(ignored_settings(&self.parts, &agent, &resolved.names));
        warnings.extend(resolved.warnings);
        warnings.extend(missing);
        warnings.extend(missing_tools(&self.parts, &agent, &authority, &self.agent_tools(&agent, &[])));
        let mut text = text;
        task.attachments.iter().for_each(|attachment| attachment.append_to(&mut text));
        warnings.extend(observers::missing(&self.parts, &agent));
        let (recorded, system) = self.root_cache.texts(&agent, system);
        Ok(Spawned {
            parent: None,
            parent_call: None,
            continues: None,
            background: false,
            placed: false,
            system,
            task: text,
            attachments: task.attachments.iter().filter_map(Attachment::image).cloned().collect(),
            context,
            inherited: task.history.clone(),
            project: prompt_context.project.or_else(|| Some(workdir.clone())),
            workdir,
            authority,
            default_cost: requested.cost_micros == Cap::Default && limits.cost_micros != Cap::Unlimited,
            limits,
            models: resolved.names,
            schema: schema(task.schema.as_ref(), &agent)?,
            until: task.until.clone(),
            delay_ms: 0,
            key: None,
            account: task.account.clone(),
            tags: task.tags.clone(),
            warnings,
            agent: recorded,
        })
    }

    /// Creates the run's own worktree and puts it in place of the folder it was made from.
    pub(crate) async fn enter_worktree(&self, id: Uuid, spawned: &mut Spawned) -> Result<(), SpawnError> {
        let Some(workspaces) = &self.parts.workspaces else {
            return Err(SpawnError::Workspace("this host does not support worktrees".to_owned()));
        };
        let workspace = workspaces.enter(id, &spawned.workdir).await.map_err(SpawnError::Workspace)?;
        // Nothing but the copy becomes reachable that was not before.
        let replace = |grant: &Grant| {
            let writes = !grant.write.is_empty();
            let mut grant = grant.clone();
            grant.read.push(workspace.workdir.clone());
            grant.read.extend(workspace.read.iter().cloned());
            if writes {
                grant.write.retain(|root| !spawned.workdir.starts_with(root));
                grant.write.push(workspace.workdir.clone());
                grant.write.extend(workspace.write.iter().cloned());
            }
            Arc::new(grant)
        };
        let authority = Authority { own: replace(&spawned.authority.own), grant: replace(&spawned.authority.grant) };
        spawned.authority = authority;
        // The prompt names the folder; a model that uses the old one would be refused.
        let (old, new) = (spawned.workdir.display().to_string(), workspace.workdir.display().to_string());
        if spawned.system.contains(&old) {
            spawned.system = Arc::from(spawned.system.replace(&old, &new));
        }
        spawned.workdir = workspace.workdir;
        Ok(())
    }

    /// The first fact of a child.
    pub(crate) fn new_child(&self, tree: &LiveTree, parent: Uuid, order: SpawnOrder) -> Result<Spawned, SpawnError> {
        let (above, inherited) = tree.read_run(parent, |run| {
            let own = || inherited(run.messages().iter().map(|entry| &entry.message), order.agent.context.inherit);
            let inherited = order.continues.as_ref().map_or_else(own, |(_, history)| history.clone());
            (run.spawned.clone(), inherited)
        });
        let agent = &order.agent;
        let models = self.parts.models.resolve(&agent.model.choice, above.models.first().map(String::as_str));
        let resolved = models.map_err(SpawnError::NoModel)?;
        let requested = order.limits.or(agent.limits);
        let explicit = explicit_cost(tree, parent, requested.cost_micros);
        let (limits, mut warnings) =
            enforceable_limits(&self.parts, requested.or(Limits::delegated()), explicit, &resolved)?;
        let authority = child_authority(&self.parts, tree, &above, agent);
        let given = shared(&above.context, &agent.context.shared_context).into_iter().chain(order.context);
        let context = with_parameters(agent, given.collect());
        warnings.extend(missing_parameters(agent, &context).map(|key| needs_value(agent, key)));
        let folder = (self.parts.prompt_context)(&above.workdir);
        let (system, missing) = prompt::render(agent, &order.text, &context, self.parts.skills.as_deref(), &folder);
        let ignored = ignored_settings(&self.parts, agent, &resolved.names);
        warnings.extend(ignored.into_iter().chain(resolved.warnings).chain(missing));
        let above_tools = tree.live_run(parent).map(|parent| self.agent_tools_of(tree, &parent)).unwrap_or_default();
        let missing = missing_tools(&self.parts, agent, &authority, &self.agent_tools(agent, &above_tools));
        warnings.extend(missing.into_iter().chain(observers::missing(&self.parts, agent)));
        let section = agent_memory::section(&self.parts, agent);
        let (recorded, system) = tree.spawn_cache.texts(agent, with_section(system, section));
        let mut spawned = Spawned {
            parent: Some(parent),
            parent_call: order.call,
            continues: order.continues.map(|(run, _)| run),
            background: order.background,
            placed: false,
            agent: recorded,
            system,
            task: order.text,
            attachments: Vec::new(),
            context,
            inherited,
            workdir: above.workdir.clone(),
            project: None,
            authority,
            limits,
            default_cost: false,
            models: resolved.names,
            schema: schema(order.schema.as_ref(), agent)?,
            until: None,
            delay_ms: order.delay_ms,
            key: None,
            account: above.account.clone(),
            tags: order.tags,
            warnings,
        };
        let parent = tree.live_run(parent).and_then(|parent| parent.tools.get().cloned());
        fork::share_prefix(&above, parent.as_deref().map_or(&[], |tools| &tools.toolbox.specs), &mut spawned);
        Ok(spawned)
    }

    /// The tools that a run of `agent` supplies, followed by the `inherited` ones that they do not hide.
    pub(crate) fn agent_tools(&self, agent: &AgentDefinition, inherited: &[Arc<dyn Tool>]) -> AgentTools {
        let own = self.parts.agent_tools.as_ref().map(|source| source.tools_of(agent)).unwrap_or_default();
        let visible: Vec<_> = inherited.iter().filter(|tool| !has_tool(&own, tool)).cloned().collect();
        own.into_iter().chain(visible).collect()
    }

    /// The same for a live run, made on first use.
    pub(crate) fn agent_tools_of(&self, tree: &LiveTree, live_run: &LiveRun) -> AgentTools {
        live_run.agent_tools(|| {
            let (agent, parent) = tree.read_run(live_run.run, |run| (run.spawned.agent.clone(), run.spawned.parent));
            let parent = parent.and_then(|id| tree.live_run(id));
            let inherited = parent.map(|parent| self.agent_tools_of(tree, &parent));
            self.agent_tools(&agent, inherited.as_deref().unwrap_or_default())
        })
    }

    /// The tools of a run, from the same authority that decides each call.
    pub(crate) fn run_tools(
        &self,
        cache: &SpawnCache,
        spawned: &Spawned,
        may_delegate: bool,
        agent_tools: &AgentTools,
    ) -> Arc<RunTools> {
        let make = || {
            let (specs, notes) = self.specs(spawned, may_delegate, agent_tools);
            RunTools::new(specs, self.parts.config.on_demand, notes)
        };
        // The grants of runs with a worktree or a memory are their own, so other runs cannot share their tools.
        let (execution, own) = (&spawned.agent.execution, &spawned.authority.own);
        let shares = execution.isolation != Isolation::Worktree && execution.memory.is_none();
        if !shares || spawned.schema.is_some() || !agent_tools.is_empty() {
            return make();
        }
        if spawned.parent.is_some() {
            cache.tools(own, may_delegate, make)
        } else if self.root_cache.is_shared(&self.policy, &spawned.agent.name, own) {
            self.root_cache.tools(own, may_delegate, make)
        } else {
            make()
        }
    }

    /// The specifications of a run's tools, with notes about what they leave out.
    fn specs(&self, spawned: &Spawned, may_delegate: bool, agent_tools: &AgentTools) -> (Vec<ToolSpec>, Vec<String>) {
        let own = &spawned.authority.own;
        let host_tools = self.parts.tools.iter().filter(|tool| !has_tool(agent_tools, tool));
        let tools = host_tools.chain(agent_tools.iter()).map(|tool| tool.spec());
        let mut specs: Vec<ToolSpec> = tools.filter(|spec| shows(own, spec)).cloned().collect();
        let mut notes = Vec::new();
        if may_delegate && own.shows(tool_names::DELEGATE, Effect::Delegates) {
            let (delegation, note) = delegation::specs(self.delegates(own));
            specs.extend(delegation);
            notes.extend(note);
        }
        if let Some(schema) = &spawned.schema {
            specs.push(
                ToolSpec::new(
                    "answer".to_owned(),
                    "Gives your final answer in the required form. Call it once, at the end.".to_owned(),
                    serde_json::Value::clone(schema),
                )
                .replay(Replay::Safe)
                .effect(Effect::Reads),
            );
        }
        (specs, notes)
    }

    /// The agents that a run with this grant may delegate to.
    pub(crate) fn delegates<'a>(&'a self, own: &'a Grant) -> impl Iterator<Item = &'a AgentDefinition> {
        self.parts.registry.offered().map(|agent| &*agent.definition).filter(|agent| {
            let subject = delegation::subject(&self.parts.registry, agent);
            !matches!(own.decide(tool_names::DELEGATE, Effect::Delegates, &subject), Decision::Deny { .. })
        })
    }
}

/// The schema of the answer: that of the task, or else that of the agent.
fn schema(of_task: Option<&Value>, agent: &AgentDefinition) -> Result<Option<Arc<Value>>, SpawnError> {
    match of_task.or(agent.task.schema.as_ref()) {
        Some(_) if cfg!(not(feature = "schemas")) => Err(SpawnError::NoSchemas),
        schema => Ok(schema.cloned().map(Arc::new)),
    }
}

/// Removes the worktree of a root that is not driven.
pub(crate) async fn abandon_worktree(parts: &RuntimeParts, tree: &LiveTree, run: Uuid) {
    let (isolation, workdir) =
        tree.read_run(run, |run| (run.spawned.agent.execution.isolation, run.spawned.workdir.clone()));
    if let (Isolation::Worktree, Some(workspaces)) = (isolation, &parts.workspaces) {
        workspaces.leave(run, &Workspace { workdir, read: Vec::new(), write: Vec::new() }).await;
    }
}

/// The definition of a task's agent, with the settings of the skill that it carries out.
fn root_agent(parts: &RuntimeParts, task: &Task) -> Result<Arc<AgentDefinition>, SpawnError> {
    let agent = parts.registry.get(&task.agent)?;
    let skill = task.skill.as_ref().and_then(|name| parts.skills.as_ref()?.card(name));
    Ok(skill.map_or_else(|| agent.clone(), |card| skill_use::carrier(agent, card)))
}

/// The authority of a root. Roots of one agent share it, unless the task brings a policy of its own.
fn root_authority(inner: &Inner, task: &Task, agent: &Arc<AgentDefinition>) -> Authority {
    match &task.policy {
        Some(policy) => Authority::root(policy.clone(), agent),
        None if is_registered(&inner.parts, agent) => inner.root_cache.child_authority(&inner.policy, agent),
        None => inner.policy.child(agent),
    }
}

/// Returns the authority of a run as a policy for the run that continues it, or `None` if it is what the runtime's own policy
/// gives every root of that agent. A worktree's folders belong to one run only.
pub(crate) fn own_policy(inner: &Inner, spawned: &Spawned) -> Option<Grant> {
    let agent = &*spawned.agent;
    let usual = agent_memory::granted(&inner.parts, agent, inner.policy.child(agent)).own;
    let own = &spawned.authority.own;
    let has_usual_folders = (&own.read, &own.write) == (&usual.read, &usual.write);
    let is_usual = (&own.layers, &own.network, own.sandbox) == (&usual.layers, &usual.network, usual.sandbox)
        && (has_usual_folders || agent.execution.isolation == Isolation::Worktree);
    (!is_usual).then(|| Grant::clone(own))
}

/// Returns whether this is the definition that the registry has under its name.
fn is_registered(parts: &RuntimeParts, agent: &Arc<AgentDefinition>) -> bool {
    parts.registry.get(&agent.name).is_ok_and(|known| Arc::ptr_eq(known, agent))
}

/// The authority of a child. A definition that was changed for this run is not the one that is cached under its name.
fn child_authority(parts: &RuntimeParts, tree: &LiveTree, above: &Spawned, agent: &Arc<AgentDefinition>) -> Authority {
    let authority = match is_registered(parts, agent).then_some(&tree.spawn_cache) {
        Some(cache) => cache.child_authority(&above.authority, agent),
        None => above.authority.child(agent),
    };
    agent_memory::granted(parts, agent, authority)
}

/// Returns true if a run with this grant is offered the tool.
pub(crate) fn shows(own: &Grant, spec: &ToolSpec) -> bool {
    own.shows(&spec.name, spec.effect)
}

/// Fails if the model of a new run does not read what is attached to its task.
fn reads_attachments(parts: &RuntimeParts, models: &[String], attachments: &[Attachment]) -> Result<(), SpawnError> {
    let Some(model) = models.first().and_then(|name| parts.models.get(name).ok()) else { return Ok(()) };
    let unreadable = |attachment: &&Attachment| attachment.image().is_some_and(|image| !model.reads(image));
    attachments.iter().find(unreadable).map_or(Ok(()), |attachment| {
        let media_type = attachment.image().map(|image| image.media_type.clone()).unwrap_or_default();
        let (model, path) = (model.card().name.clone(), attachment.path.clone());
        Err(SpawnError::UnreadableAttachment { model, path, media_type })
    })
}

/// Warnings if the agent asks for settings that its model does not take.
fn ignored_settings(parts: &RuntimeParts, agent: &AgentDefinition, models: &[String]) -> Vec<String> {
    let Some((name, model)) = models.first().and_then(|name| Some((name, parts.models.get(name).ok()?))) else {
        return Vec::new();
    };
    let effort = agent.model.effort.filter(|effort| *effort != Effort::None && !model.takes_effort());
    let word = effort.and_then(|effort| serde_json::to_value(effort).ok()).unwrap_or_default();
    let effort = word
        .as_str()
        .map(|word| format!("agent {} asks for effort {word}, which {name} does not take: ignored", agent.name));
    let others = model.ignored_settings(&agent.model.sampling).into_iter();
    effort.into_iter().chain(others.map(|setting| format!("the setting `{setting}` has no effect on {name}"))).collect()
}

/// Returns true if `tools` has a tool of the same name.
fn has_tool(tools: &[Arc<dyn Tool>], tool: &Arc<dyn Tool>) -> bool {
    tools.iter().any(|other| other.spec().name == tool.spec().name)
}

/// The context with the defaults of the agent's parameters.
fn with_parameters(agent: &AgentDefinition, mut context: BTreeMap<String, Value>) -> BTreeMap<String, Value> {
    for (key, default) in &agent.task.parameters {
        if let Some(default) = default {
            context.entry(key.clone()).or_insert_with(|| default.clone());
        }
    }
    context
}

/// Warnings about tools that the agent lists and does not get, and about an agent that gets none at all.
fn missing_tools(
    parts: &RuntimeParts,
    agent: &AgentDefinition,
    authority: &Authority,
    agent_tools: &AgentTools,
) -> Vec<String> {
    let Allow::Only(rules) = &agent.tools.allowed else { return Vec::new() };
    let all = || agent_tools.iter().chain(&parts.tools);
    let exists = |rule: &Rule| {
        rule.names("answer")
            || tool_names::delegation().any(|tool| rule.names(tool))
            || all().any(|tool| rule.names(&tool.spec().name))
    };
    let mut warnings: Vec<String> = rules
        .iter()
        .filter(|rule| !exists(rule))
        .map(|rule| match tool_names::canonical(&rule.tool) {
            Some(_) => format!("agent {} lists `{rule}`, which this host does not provide", agent.name),
            None => format!("agent {} lists `{rule}`, but there is no such tool", agent.name),
        })
        .collect();
    let any = all().any(|tool| shows(&authority.own, tool.spec()));
    if !rules.is_empty() && !any && !authority.own.shows(tool_names::DELEGATE, Effect::Delegates) {
        warnings.push(format!(
            "agent {} has no tools: its definition and its parent's authority have none in common; give the parent more \
             tools, or let it pass on more with `delegates`",
            agent.name
        ));
    }
    warnings
}

fn needs_value(agent: &AgentDefinition, key: &str) -> String {
    format!("agent {} needs a value for `{key}`", agent.name)
}

/// The parameters of an agent that have no value.
fn missing_parameters<'a>(
    agent: &'a AgentDefinition,
    context: &'a BTreeMap<String, Value>,
) -> impl Iterator<Item = &'a str> {
    agent.task.parameters.keys().filter(|key| !context.contains_key(*key)).map(String::as_str)
}

/// Adds a section to a prompt.
fn with_section(system: String, section: Option<String>) -> String {
    match section {
        Some(section) if system.is_empty() => section,
        Some(section) => format!("{system}\n\n{section}"),
        None => system,
    }
}

/// The parent's messages that a child starts with: whole turns only, without the one in progress.
fn inherited<'a>(messages: impl Iterator<Item = &'a Message>, inherit: Inherit) -> Vec<Message> {
    if inherit == Inherit::None {
        return Vec::new();
    }
    let mut all: Vec<Message> = messages.cloned().collect();
    if matches!(all.last(), Some(Message::Assistant(reply)) if reply.calls().next().is_some()) {
        all.pop();
    }
    if let Inherit::Last(count) = inherit {
        let from = all.len().saturating_sub(count as usize);
        let is_result = |message: &Message| matches!(message, Message::Tool(_));
        let from = (from..all.len()).find(|at| !is_result(&all[*at])).unwrap_or(all.len());
        all.drain(..from);
    }
    all
}

#[cfg(test)]
mod tests {
    use homing_core::{
        model::{ModelRequest, SingleModel},
        registry::Registry,
        scripted_model::{FunctionModel, call, say},
    };
    use serde_json::json;

    use super::*;
    use crate::{journal::NullJournal, runtime::Runtime};

    #[tokio::test(start_paused = true)]
    async fn spawn_caches_of_a_long_lived_runtime_do_not_grow() {
        let decide = |request: ModelRequest<'_>| {
            let first = request.messages.len() == 1;
            let delegate = || call(["a", "b"].map(|task| ("delegate", json!({"agent": "worker", "task": task}))));
            Ok(if request.system == "lead" && first { delegate() } else { say("done") })
        };
        let agent = |name: &str| AgentDefinition::new(name, name, name);
        let registry = Registry::from_iter([agent("lead"), agent("worker")]);
        let model = Arc::new(SingleModel(Arc::new(FunctionModel::new("script/both", decide))));
        let runtime = Runtime::new(RuntimeParts::new(registry, model, Arc::new(NullJournal::default())));
        for _ in 0..20 {
            let envelope = runtime.spawn(Task::new("lead", "go")).unwrap().wait().await;
            assert_eq!(envelope.children.len(), 2);
        }
        let trees = runtime.0.trees();
        assert_eq!(trees.len(), 20, "trees are kept after their end");
        assert_eq!(trees.iter().map(|tree| tree.spawn_cache.len()).sum::<usize>(), 0);
    }

    #[test]
    fn spawn_cache_compares_grants_by_identity_and_keeps_them_alive() {
        let cache = SpawnCache::default();
        let grant = |root: &str| {
            Arc::new(
                Grant::new(Vec::new())
                    .read(vec![root.into()])
                    .network(homing_core::authority::Network::Off)
                    .sandbox(homing_core::authority::Sandbox::ReadOnly),
            )
        };
        let agent = AgentDefinition::new("worker", "works", "worker");
        for n in 0..100 {
            let root = format!("/{n}");
            let parent = Authority { own: grant(&root), grant: grant(&root) };
            // The parent is dropped at once; a later one at the same address must not get this one's authority.
            assert_eq!(cache.child_authority(&parent, &agent).own.read, parent.child(&agent).own.read);
        }
        assert_eq!(cache.len(), 100);
        cache.clear();
        assert_eq!(cache.len(), 0);
    }
}
