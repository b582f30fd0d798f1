//! What a run is born with: its prompt, models, limits, authority, folder, tools.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use homing_core::{
    authority::{Allow, Authority, Decision, Grant},
    definition::{AgentDefinition, Inherit, Isolation, ModelChoice},
    fact::Spawned,
    limits::{Cap, Limits},
    message::Message,
    model::ResolvedModel,
    rule::{Rule, Subject, Subjects},
    run::shared,
    tool::{Replay, Tool, ToolSpec},
    tool_names,
    workspace::{Left, Workspace},
};
use uuid::Uuid;

use crate::{
    agent_loop::run_driver::RunDriver,
    delegation,
    event::TransientKind,
    live_tree::{AgentTools, LiveRun, LiveTree, RunTools},
    prompt,
    runtime::{Inner, SpawnError, SpawnOrder},
    task::Task,
};

/// What was worked out once and is the same for every child of the same parent and agent.
#[derive(Default)]
pub(crate) struct SpawnCaches {
    authorities: Mutex<HashMap<AuthorityKey, (Arc<Grant>, Authority)>>,
    kits: Mutex<HashMap<KitKey, Arc<RunTools>>>,
}

/// The parent's grant, by address, and the agent's name.
type AuthorityKey = (usize, String);

/// An authority by address, and whether the run may delegate.
type KitKey = (usize, bool);

impl Inner {
    pub(crate) fn root_spawned(&self, task: &Task) -> Result<Spawned, SpawnError> {
        let agent = self.parts.registry.get(&task.agent)?.clone();
        let text = match (task.text.trim(), &agent.initial_prompt) {
            ("", Some(initial)) => initial.clone(),
            ("", None) => return Err(SpawnError::EmptyTask),
            _ => task.text.clone(),
        };
        let choice = task.model.clone().map_or_else(|| agent.model.clone(), |name| ModelChoice::Named(vec![name]));
        let resolved = self.parts.models.resolve(&choice, None).map_err(SpawnError::NoModel)?;
        let asked_for = task.limits.or(agent.limits);
        let limits = asked_for.or(Limits::root());
        let (limits, unpriced) = self.priced(limits, asked_for.cost_micros, &resolved)?;
        let mut warnings = task.warnings.clone();
        warnings.extend(unpriced);
        let workdir = task.workdir.clone().unwrap_or_else(|| self.parts.workdir.clone());
        let policy = task.policy.clone().unwrap_or_else(|| self.parts.policy.clone());
        let authority = Authority::root(policy, &agent);
        let setting = (self.parts.setting)(&workdir);
        let (system, lacking) = prompt::render(&agent, &text, &task.context, self.parts.skills.as_deref(), &setting);
        warnings.extend(resolved.warnings);
        warnings.extend(lacking);
        warnings.extend(self.missing_tools(&agent, &authority, &self.brought(&agent, &[])));
        Ok(Spawned {
            parent: None,
            parent_call: None,
            continues: None,
            background: false,
            system: Arc::from(system),
            task: text,
            context: task.context.clone(),
            inherited: task.history.clone(),
            workdir,
            authority,
            limits,
            models: resolved.names,
            schema: task.schema.clone().or_else(|| agent.schema.clone()).map(Arc::new),
            until: task.until.clone(),
            key: task.key.clone(),
            account: task.account.clone(),
            tags: task.tags.clone(),
            warnings,
            agent: without_prompt(&agent),
        })
    }

    /// Money can be limited only where prices are known: the default becomes a token limit, an explicit one is refused.
    fn priced(
        &self,
        limits: Limits,
        explicit: Cap,
        models: &ResolvedModel,
    ) -> Result<(Limits, Vec<String>), SpawnError> {
        let unpriced = models
            .names
            .iter()
            .find(|name| self.parts.models.get(name).is_ok_and(|model| model.card().rates.is_none()));
        let Some(model) = unpriced else { return Ok((limits, Vec::new())) };
        match explicit {
            Cap::At(_) => Err(SpawnError::UnknownPrice { model: model.clone() }),
            Cap::Unlimited | Cap::Default => {
                let tokens = limits.tokens.tighter(Cap::At(5_000_000));
                let warning = format!(
                    "nobody knows what {model} costs: the limit is {} tokens instead of money",
                    tokens.value().unwrap_or(0)
                );
                Ok((Limits { tokens, cost_micros: Cap::Unlimited, ..limits }, vec![warning]))
            }
        }
    }

    pub(crate) async fn move_in(&self, id: Uuid, spawned: &mut Spawned) -> Result<(), SpawnError> {
        let Some(workspaces) = &self.parts.workspaces else {
            return Err(SpawnError::Workspace("this host has no worktrees".to_owned()));
        };
        let workspace = workspaces.enter(id, &spawned.workdir).await.map_err(SpawnError::Workspace)?;
        // The folder takes the place of the one it was made from: nothing is reachable that was not before, but the copy.
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
        spawned.workdir = workspace.workdir;
        Ok(())
    }

    pub(crate) fn child_spawned(
        &self,
        book: &LiveTree,
        parent: Uuid,
        order: SpawnOrder,
    ) -> Result<Spawned, SpawnError> {
        let (above, inherited) = book.look_at(parent, |run| {
            let inherited = match &order.continues {
                Some((_, history)) => history.clone(),
                None => inherited(run.messages().iter().map(|entry| &entry.message), order.agent.inherit),
            };
            (run.spawned.clone(), inherited)
        });
        let agent = &order.agent;
        let models = self.parts.models.resolve(&agent.model, above.models.first().map(String::as_str));
        let resolved = models.map_err(SpawnError::NoModel)?;
        let asked_for = order.limits.or(agent.limits);
        let explicit = book.look(|tree| {
            tree.lineage(parent).fold(asked_for.cost_micros, |cap, run| cap.tighter(run.limits.cost_micros))
        });
        let (limits, mut warnings) = self.priced(asked_for.or(Limits::delegated()), explicit, &resolved)?;
        let authority = self.child_authority(&above.authority, agent);
        let mut context = shared(&above.context, &agent.shared_context);
        context.extend(order.context);
        let setting = (self.parts.setting)(&above.workdir);
        let (system, lacking) = prompt::render(agent, &order.text, &context, self.parts.skills.as_deref(), &setting);
        warnings.extend(resolved.warnings);
        warnings.extend(lacking);
        let above_brought = book.cell(parent).map(|cell| self.brought_to(book, &cell)).unwrap_or_default();
        warnings.extend(self.missing_tools(agent, &authority, &self.brought(agent, &above_brought)));
        Ok(Spawned {
            parent: Some(parent),
            parent_call: order.call,
            continues: order.continues.map(|(run, _)| run),
            background: order.background,
            agent: without_prompt(agent),
            system: Arc::from(system),
            task: order.text,
            context,
            inherited,
            workdir: above.workdir.clone(),
            authority,
            limits,
            models: resolved.names,
            schema: order.schema.or_else(|| agent.schema.clone()).map(Arc::new),
            until: None,
            key: None,
            account: above.account.clone(),
            tags: BTreeMap::new(),
            warnings,
        })
    }

    /// A child's authority, worked out once per parent and agent: a parent with a thousand children shares one.
    fn child_authority(&self, parent: &Authority, agent: &AgentDefinition) -> Authority {
        let mut known = self.known.authorities.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (Arc::as_ptr(&parent.grant) as usize, agent.name.clone());
        // The grant is kept beside the result, so that its address cannot come to mean another one.
        let made = known.entry(key).or_insert_with(|| (parent.grant.clone(), parent.child(agent)));
        made.1.clone()
    }

    /// A misspelt tool must not go unnoticed, and neither must an agent that can do nothing.
    fn missing_tools(&self, agent: &AgentDefinition, authority: &Authority, brought: &AgentTools) -> Vec<String> {
        let Allow::Only(rules) = &agent.tools else { return Vec::new() };
        let all = || brought.iter().chain(&self.parts.tools);
        let exists = |rule: &Rule| {
            rule.names("delegate") || rule.names("answer") || all().any(|tool| rule.names(&tool.spec().name))
        };
        let mut warnings: Vec<String> = rules
            .iter()
            .filter(|rule| !exists(rule))
            .map(|rule| match tool_names::canonical(&rule.tool) {
                Some(_) => format!("agent {} lists `{rule}`, which this host does not offer", agent.name),
                None => format!("agent {} lists `{rule}`, and there is no such tool", agent.name),
            })
            .collect();
        let any = all().any(|tool| authority.own.shows(&tool.spec().name));
        if !rules.is_empty() && !any && !authority.own.shows("delegate") {
            warnings.push(format!(
                "agent {} has no tool left: its file and its parent's authority have none in common; widen the parent's \
                 tools, or let it hand on more with `delegates`",
                agent.name
            ));
        }
        warnings
    }

    /// What a run of `agent` brings, before what was brought above it.
    pub(crate) fn brought(&self, agent: &AgentDefinition, above: &[Arc<dyn Tool>]) -> AgentTools {
        let own = self.parts.agent_tools.as_ref().filter(|_| !agent.mcp_servers.is_empty());
        let own = own.map(|tools| tools.brought_by(agent)).unwrap_or_default();
        let hidden = |tool: &Arc<dyn Tool>| own.iter().any(|it| it.spec().name == tool.spec().name);
        let above: Vec<_> = above.iter().filter(|tool| !hidden(tool)).cloned().collect();
        own.into_iter().chain(above).collect()
    }

    /// The same for a run under way: made once, on first use.
    pub(crate) fn brought_to(&self, book: &LiveTree, cell: &LiveRun) -> AgentTools {
        cell.brought(|| {
            let (agent, parent) = book.look_at(cell.run, |run| (run.spawned.agent.clone(), run.spawned.parent));
            let above = parent.and_then(|id| book.cell(id)).map(|cell| self.brought_to(book, &cell));
            self.brought(&agent, above.as_deref().unwrap_or_default())
        })
    }

    /// The tools of a run, from the same authority that decides each call.
    pub(crate) fn kit(&self, spawned: &Arc<Spawned>, deeper: bool, brought: &AgentTools) -> Arc<RunTools> {
        let own = &spawned.authority.own;
        let key = (Arc::as_ptr(own) as usize, deeper);
        // A root's authority is its own; only children share theirs, and those are kept alive beside it.
        let shared = spawned.parent.is_some() && spawned.schema.is_none() && brought.is_empty();
        if let Some(kit) = shared.then(|| self.lock_kits().get(&key).cloned()).flatten() {
            return kit;
        }
        let kit = RunTools::new(self.specs(own, deeper, spawned, brought));
        if shared {
            self.lock_kits().insert(key, kit.clone());
        }
        kit
    }

    fn specs(&self, own: &Grant, deeper: bool, spawned: &Spawned, brought: &AgentTools) -> Vec<ToolSpec> {
        let hidden = |tool: &&Arc<dyn Tool>| brought.iter().any(|it| it.spec().name == tool.spec().name);
        let hosts = self.parts.tools.iter().filter(|tool| !hidden(tool));
        let tools = hosts.chain(brought.iter()).map(|tool| tool.spec());
        let mut specs: Vec<ToolSpec> = tools.filter(|spec| own.shows(&spec.name)).cloned().collect();
        if deeper && own.shows("delegate") {
            let may = |agent: &&AgentDefinition| {
                let subject = Subjects::Parts(vec![Subject::Name(agent.name.clone())]);
                !matches!(own.decide("delegate", &subject), Decision::Deny { .. })
            };
            let agents = self.parts.registry.all().map(|it| &*it.definition).filter(may);
            specs.extend(delegation::specs(agents));
        }
        if let Some(schema) = &spawned.schema {
            specs.push(ToolSpec {
                name: "answer".to_owned(),
                description: "Gives your final answer in the form that is expected. Call it once, at the end."
                    .to_owned(),
                schema: serde_json::Value::clone(schema),
                replay: Replay::Safe,
                effect: homing_core::tool::Effect::Reads,
            });
        }
        specs
    }

    fn lock_kits(&self) -> MutexGuard<'_, HashMap<KitKey, Arc<RunTools>>> {
        self.known.kits.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl RunDriver {
    /// Takes the run's own folder back, if it has one.
    pub(crate) async fn close_workspace(&self) {
        let (isolated, workdir) = self.run(|run| {
            let isolated = run.spawned.agent.isolation == Isolation::Worktree;
            (isolated && run.spawned.parent.is_some(), run.spawned.workdir.clone())
        });
        if let (true, Some(workspaces)) = (isolated, &self.inner.parts.workspaces) {
            let workspace = Workspace { workdir, read: Vec::new(), write: Vec::new() };
            if let Left::Kept { path, summary } = workspaces.leave(self.cell.run, &workspace).await {
                let text = format!("files kept in {}: {summary}", path.display());
                self.book.pass(&self.cell, || TransientKind::Warning(text));
            }
        }
    }
}

/// The definition without its prompt, which stands rendered beside it.
fn without_prompt(agent: &Arc<AgentDefinition>) -> Arc<AgentDefinition> {
    Arc::new(AgentDefinition { prompt: String::new(), ..AgentDefinition::clone(agent) })
}

/// The parent's messages that a child starts with: whole turns only, and not the one that is still open.
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
