//! Agents, teams, projects, models and usage: lists for pages and forms.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use homing::{
    EnvelopeUsage, Task,
    crates::{
        runtime::journal::sqlite::{Filter, SumBy},
        teams,
    },
};
use hyper::StatusCode;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{
    call::{Call, Outcome, blocking, json, number},
    problem::Problem,
    server::Server,
};

/// Selection of a project.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct ProjectQuery {
    /// Project folder, one that the journal knows (default: the folder of the server).
    project: Option<String>,
}

/// The agents of a project.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Agents {
    /// The agents, as `homing agents --json` prints them.
    agents: Value,
    /// Names of the teams.
    teams: Vec<String>,
}

pub(crate) async fn agents(server: Arc<Server>, call: Call) -> Outcome {
    let project = server.queried_project(&call).await?;
    let all = project.homing().registry().all().map(|entry| &entry.definition);
    let teams = all.filter(|definition| teams::is_team_agent(definition)).map(|definition| definition.name.clone());
    json(StatusCode::OK, &Agents { agents: project.agents(), teams: teams.collect() })
}

pub(crate) async fn agent(server: Arc<Server>, call: Call) -> Outcome {
    let project = server.queried_project(&call).await?;
    json(StatusCode::OK, &project.agent(call.param(0))?)
}

/// A team as nodes and edges.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct TeamGraph {
    /// Name of the team.
    name: String,
    /// Nodes: `{id, label, kind}`.
    #[schemars(with = "Vec<Value>")]
    nodes: Vec<teams::DiagramNode>,
    /// Edges: `{from, to, label?}`.
    #[schemars(with = "Vec<Value>")]
    edges: Vec<teams::DiagramEdge>,
}

pub(crate) async fn team(server: Arc<Server>, call: Call) -> Outcome {
    let project = server.queried_project(&call).await?;
    let name = call.param(0).to_owned();
    let no_team = || Problem::not_found(format!("there is no team `{name}`"));
    let planned = project.homing().runtime().plan(Task::new(name.clone(), "show")).map_err(|_| no_team())?;
    let team = teams::recorded(&planned.0).ok_or_else(no_team)?;
    let teams::Diagram { nodes, edges, .. } = teams::diagram(&team);
    json(StatusCode::OK, &TeamGraph { name, nodes, edges })
}

/// Selection of usage.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct UsageQuery {
    /// `day` (the default), `agent`, `model`, or `tag:NAME`.
    by: Option<String>,
    /// Only runs that started at this time or later, in milliseconds since 1970.
    #[serde(deserialize_with = "number")]
    since: Option<u64>,
}

/// Sums of usage, and the budget accounts.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct UsageSums {
    /// One sum per day, agent, model or value of the tag.
    sums: Vec<UsageSum>,
    /// The budget accounts.
    accounts: Vec<AccountUsage>,
}

/// The usage of a group of runs.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct UsageSum {
    /// The day, agent, model or value of the tag.
    name: String,
    /// Number of runs.
    runs: u64,
    /// Sum of their usage.
    #[schemars(with = "BTreeMap<String, Value>")]
    usage: EnvelopeUsage,
}

/// A budget account.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct AccountUsage {
    /// Name of the account.
    name: String,
    /// Micro-dollars spent in the period.
    spent_micros: u64,
    /// Limit in micro-dollars.
    limit_micros: Option<u64>,
    /// `day`: days begin at midnight UTC.
    period: &'static str,
}

pub(crate) async fn usage(server: Arc<Server>, call: Call) -> Outcome {
    let query: UsageQuery = call.query()?;
    let by = match query.by.as_deref().unwrap_or("day") {
        "day" | "" => SumBy::Day,
        "agent" => SumBy::Agent,
        "model" => SumBy::Model,
        other => match other.strip_prefix("tag:").filter(|name| !name.is_empty()) {
            Some(name) => SumBy::Tag(name.to_owned()),
            None => return Err(Problem::bad_request(format!("`{other}`: use day, agent, model or tag:NAME"))),
        },
    };
    let limits = server.projects.main().await?.accounts();
    let watch = server.watch.clone();
    let sums = blocking(move || {
        let sums = watch.journal.sum_by(&by, query.since)?.into_iter();
        let sums = sums.map(|sum| UsageSum { name: sum.name, runs: sum.runs, usage: sum.usage }).collect();
        let spent = watch.feed.spent_today()?;
        let names: BTreeSet<&String> = spent.keys().chain(limits.keys()).collect();
        let account = |name: &String| AccountUsage {
            name: name.clone(),
            spent_micros: spent.get(name).copied().unwrap_or_default(),
            limit_micros: limits.get(name).copied().flatten(),
            period: "day",
        };
        Ok(UsageSums { sums, accounts: names.into_iter().map(account).collect() })
    });
    json(StatusCode::OK, &sums.await?)
}

/// The projects that the journal knows.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct ProjectList {
    /// Folders, that of the server first.
    projects: Vec<String>,
}

pub(crate) async fn projects(server: Arc<Server>, _: Call) -> Outcome {
    json(StatusCode::OK, &ProjectList { projects: server.known_projects().await? })
}

/// The models that forms offer.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct ModelList {
    /// The model of runs that name none.
    default: Option<String>,
    /// The default, those of the configuration, and those that recorded runs used.
    models: Vec<String>,
}

pub(crate) async fn models(server: Arc<Server>, _: Call) -> Outcome {
    let (default, configured) = server.projects.main().await?.models();
    let journal = server.watch.journal.clone();
    let used = blocking(move || Ok(journal.sum_by(&SumBy::Model, None)?)).await?;
    let mut models: Vec<String> = Vec::new();
    let used = used.into_iter().map(|sum| sum.name);
    for name in default.iter().cloned().chain(configured).chain(used) {
        if !name.is_empty() && !models.contains(&name) && !name.starts_with("team/") {
            models.push(name);
        }
    }
    json(StatusCode::OK, &ModelList { default, models })
}

impl Server {
    /// Returns the project that the query names.
    pub(crate) async fn queried_project(&self, call: &Call) -> Result<Arc<dyn crate::host::OpenProject>, Problem> {
        let query: ProjectQuery = call.query()?;
        let named = query.project.filter(|project| !project.is_empty());
        let folder = self.known_project(named.as_ref().map(std::path::Path::new)).await?;
        Ok(self.projects.of_folder(&folder).await?)
    }

    /// Returns the folders in which recorded runs worked, that of the server first.
    pub(crate) async fn known_projects(&self) -> Result<Vec<String>, Problem> {
        let (watch, own) = (self.watch.clone(), self.projects.folder.display().to_string());
        blocking(move || {
            let rows = watch.cache.rows(&Filter::default())?;
            let recorded: BTreeSet<String> = rows.into_iter().map(|row| row.summary.project).collect();
            let others = recorded.into_iter().filter(|folder| !folder.is_empty() && *folder != own);
            Ok([own.clone()].into_iter().chain(others).collect())
        })
        .await
    }
}
