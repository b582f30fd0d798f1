//! Decides the next step of the offline model from the transcript: delegate to explorers, search, read, or report.

use homing_core::{
    message::{Args, Message, Part, Reply, StopReason, ToolCall, ToolResult},
    model::{ModelRequest, ToolChoice},
    tool::ToolSpec,
    tool_names::canonical,
};
use serde_json::{Map, Value, json};

use crate::{
    fill_schema::{SchemaContent, fill},
    keywords::{Keyword, keywords},
    search_hits::{
        DEFINERS, SearchAspect, SearchFindings, SearchHit, answer_text, is_like_path, numbered, parse, rank,
    },
};

/// The first line of every report, so that it is not mistaken for the answer of a language model.
const NOTICE: &str = "(offline: a keyword search, not a language model — it matched words and understood nothing)";

/// The beginning of every task that the offline model gives to an explorer.
const EXPLORER_TASK: &str = "Search the files for";

/// Returns the reply to `request`.
pub(super) fn reply(request: &ModelRequest<'_>) -> Reply {
    let state = PlanState::new(request);
    if request.choice == ToolChoice::Off {
        return state.report();
    }
    match state.next_step() {
        PlanStep::Delegate(explorer) => calls(state.delegations(&explorer)),
        PlanStep::Search => calls(state.searches()),
        PlanStep::Read => calls(state.reads()),
        PlanStep::Report => state.report(),
    }
}

/// The next step.
enum PlanStep {
    /// Delegate to explorers of this name.
    Delegate(String),
    Search,
    Read,
    Report,
}

/// The input of the rules.
struct PlanState<'a> {
    request: &'a ModelRequest<'a>,
    question: String,
    keywords: Vec<Keyword>,
    aspect: SearchAspect,
    /// Tool results since the question, with the canonical names of the tools.
    results: Vec<(&'static str, &'a ToolResult)>,
}

impl<'a> PlanState<'a> {
    fn new(request: &'a ModelRequest<'a>) -> Self {
        let asked = request.messages.iter().rposition(|entry| matches!(entry.message, Message::User { .. }));
        // A final report without tools is about the first question.
        let first = request.messages.iter().position(|entry| matches!(entry.message, Message::User { .. }));
        let at = if request.choice == ToolChoice::Off { first } else { asked }.unwrap_or(0);
        let text = match request.messages.get(at).map(|entry| &entry.message) {
            Some(Message::User { text, .. }) => text.clone(),
            Some(Message::Assistant(_) | Message::Tool(_)) | None => String::new(),
        };
        let results = request.messages.iter().skip(at).filter_map(|entry| match &entry.message {
            Message::Tool(result) => Some((canonical(&result.name).unwrap_or("other"), &**result)),
            Message::User { .. } | Message::Assistant(_) => None,
        });
        let question = question_of(&text);
        Self { request, keywords: keywords(&question), aspect: aspect_of(&text), question, results: results.collect() }
    }

    fn tool(&self, name: &str) -> Option<&'a ToolSpec> {
        self.request.tools.specs.iter().find(|spec| canonical(&spec.name) == Some(name))
    }

    fn has_result(&self, name: &str) -> bool {
        self.results.iter().any(|(tool, _)| *tool == name)
    }

    fn next_step(&self) -> PlanStep {
        let has_searched = self.has_result("grep") || self.has_result("glob");
        let has_looked = has_searched || self.has_result("delegate");
        let can_search = self.tool("grep").is_some() || self.tool("glob").is_some();
        match self.explorer() {
            _ if self.keywords.is_empty() && self.named_files().is_empty() => PlanStep::Report,
            Some(explorer) if self.results.is_empty() => PlanStep::Delegate(explorer),
            _ if !has_searched && !self.has_result("delegate") && can_search => PlanStep::Search,
            _ if has_looked && !self.has_result("read") && !self.reads().is_empty() => PlanStep::Read,
            _ => PlanStep::Report,
        }
    }

    /// Returns the explorer to delegate to, unless this run is itself such a delegation.
    fn explorer(&self) -> Option<String> {
        let spec = self.tool("delegate").filter(|_| self.aspect == SearchAspect::Any)?;
        let names = spec.schema.pointer("/properties/agent/enum").and_then(Value::as_array);
        let mut names = names.into_iter().flatten().filter_map(Value::as_str);
        names.find(|name| name.contains("explor")).map(str::to_owned)
    }

    fn delegations(&self, explorer: &str) -> Vec<ToolCall> {
        let aspects = ["definitions", "usages", "tests and documentation"];
        let task = |what: &str| {
            format!(
                "{EXPLORER_TASK} {what} that answer this question, and report paths and lines.\nQuestion: {}",
                self.question
            )
        };
        let args = |what: &str| json!({ "agent": explorer, "task": task(what) });
        let name = self.tool("delegate").map_or("delegate", |spec| &spec.name);
        aspects.iter().map(|what| call(name, args(what))).collect()
    }

    fn searches(&self) -> Vec<ToolCall> {
        let mut calls = Vec::new();
        if let Some(grep) = self.tool("grep") {
            if !self.keywords.is_empty() {
                calls.push(call(&grep.name, grep_args(grep, &definitions_pattern(&self.keywords))));
            }
            for keyword in self.keywords.iter().take(4) {
                calls.push(call(&grep.name, grep_args(grep, &keyword.pattern())));
            }
        }
        if let Some(glob) = self.tool("glob") {
            for keyword in self.keywords.iter().take(2) {
                calls.push(call(&glob.name, json!({ "pattern": format!("**/*{}*", keyword.word.to_lowercase()) })));
            }
        }
        calls
    }

    /// Returns the calls that read around the best lines and in files that the question names.
    fn reads(&self) -> Vec<ToolCall> {
        let Some(read) = self.tool("read") else { return Vec::new() };
        let named = self.named_files().into_iter().take(2).map(|path| json!({ "path": path, "limit": 60 }));
        let best = self.ranked().into_iter().take(3).filter_map(|found| {
            let line = self.best_line(&found)?;
            Some(json!({ "path": found.path, "offset": line.saturating_sub(3).max(1), "limit": 24 }))
        });
        named.chain(best).take(3).map(|args| call(&read.name, with_schema_names(read, args))).collect()
    }

    fn best_line(&self, found: &SearchFindings) -> Option<u64> {
        let fitness = |hit: &&SearchHit| self.keywords.iter().map(|keyword| keyword.fits(&hit.text)).sum::<u32>();
        found.hits.iter().max_by_key(|hit| (fitness(hit), std::cmp::Reverse(hit.line))).map(|hit| hit.line)
    }

    fn named_files(&self) -> Vec<String> {
        let trimmed =
            self.question.split_whitespace().map(|word| word.trim_matches(['`', '"', '\'', ',', '?', '(', ')', ':']));
        trimmed
            .filter(|word| word.contains('.') && is_like_path(word.trim_end_matches('.')))
            .map(|word| word.trim_end_matches('.').to_owned())
            .collect()
    }

    /// Returns every line that searches or explorers found.
    fn hits(&self) -> Vec<SearchHit> {
        let useful = self
            .results
            .iter()
            .filter(|(tool, result)| !result.is_error && matches!(*tool, "grep" | "delegate" | "wait"));
        useful.flat_map(|(_, result)| parse(&answer_text(&result.text))).collect()
    }

    fn ranked(&self) -> Vec<SearchFindings> {
        rank(&self.hits(), &self.keywords, self.aspect)
    }

    fn report(&self) -> Reply {
        let ranked = self.ranked();
        let hits: Vec<SearchHit> = ranked.iter().take(8).flat_map(|found| found.hits.clone()).collect();
        let text = self.report_text(&ranked);
        match self.tool("answer").filter(|_| self.request.choice != ToolChoice::Off) {
            Some(answer) => {
                calls(vec![call(&answer.name, fill(&answer.schema, &SchemaContent { text: &text, hits: &hits }))])
            }
            None => Reply::text_only(text),
        }
    }

    fn report_text(&self, ranked: &[SearchFindings]) -> String {
        let words: Vec<&str> = self.keywords.iter().map(|keyword| keyword.word.as_str()).collect();
        let mut out = format!("{NOTICE}\n\n");
        if words.is_empty() && self.named_files().is_empty() {
            out.push_str("The task has no word worth searching for. Name a function, a type, a file or a topic.");
            return out;
        }
        if ranked.is_empty() && self.results.is_empty() {
            out.push_str("There is no tool here to search with (grep or glob), so nothing was looked up.");
            return out;
        }
        if ranked.is_empty() {
            out.push_str(&format!("Nothing was found for: {}.", words.join(", ")));
            self.push_files(&mut out);
            return out;
        }
        out.push_str(&format!("Best matches for: {}\n\n", words.join(", ")));
        for found in ranked.iter().take(8) {
            for hit in &found.hits {
                out.push_str(&format!("- {}:{} — {}\n", hit.path, hit.line, shortened(&hit.text)));
            }
        }
        if let Some(rest) = ranked.len().checked_sub(8).filter(|rest| *rest > 0) {
            out.push_str(&format!("\n{rest} more files match less well.\n"));
        }
        self.push_files(&mut out);
        self.push_excerpt(&mut out);
        self.push_errors(&mut out);
        out.trim_end().to_owned()
    }

    fn push_files(&self, out: &mut String) {
        let named = self.results.iter().filter(|(tool, result)| *tool == "glob" && !result.is_error);
        let mut paths: Vec<&str> = named
            .flat_map(|(_, result)| result.text.lines())
            .map(str::trim)
            .filter(|line| is_like_path(line))
            .collect();
        paths.sort_unstable();
        paths.dedup();
        if !paths.is_empty() {
            out.push_str(&format!(
                "\nFiles with such a name: {}\n",
                paths.iter().take(6).copied().collect::<Vec<_>>().join(", ")
            ));
        }
    }

    /// Adds the lines around the best match.
    fn push_excerpt(&self, out: &mut String) {
        let read = self.results.iter().find(|(tool, result)| *tool == "read" && !result.is_error);
        let Some((_, result)) = read else { return };
        let lines: Vec<&str> = result.text.lines().filter(|line| numbered(line).is_some()).take(24).collect();
        if !lines.is_empty() {
            out.push_str(&format!("\nAround the best match:\n```\n{}\n```\n", lines.join("\n")));
        }
    }

    fn push_errors(&self, out: &mut String) {
        let failed = self.results.iter().filter(|(_, result)| result.is_error).count();
        if failed > 0 {
            out.push_str(&format!(
                "\n{failed} of {} tool calls failed, so the result may be incomplete.\n",
                self.results.len()
            ));
        }
    }
}

fn calls(calls: Vec<ToolCall>) -> Reply {
    Reply::new(calls.into_iter().map(Part::from).collect()).stop(StopReason::Calls)
}

fn call(name: &str, args: Value) -> ToolCall {
    ToolCall { id: String::new(), name: name.to_owned(), args: Args::Json(args) }
}

/// Returns the question inside a delegated task, or the task itself.
fn question_of(task: &str) -> String {
    match task.strip_prefix(EXPLORER_TASK).and_then(|rest| rest.split_once("Question: ")) {
        Some((_, question)) => question.trim().to_owned(),
        None => task.trim().to_owned(),
    }
}

fn aspect_of(task: &str) -> SearchAspect {
    let Some(rest) = task.strip_prefix(EXPLORER_TASK) else { return SearchAspect::Any };
    match rest.trim_start() {
        text if text.starts_with("definitions") => SearchAspect::Definitions,
        text if text.starts_with("usages") => SearchAspect::Usages,
        _ => SearchAspect::Around,
    }
}

fn definitions_pattern(keywords: &[Keyword]) -> String {
    let definers: Vec<&str> = DEFINERS.iter().copied().filter(|word| !word.ends_with('!')).collect();
    let forms = keywords.iter().take(3).map(Keyword::forms).collect::<Vec<_>>().join("|");
    format!("\\b(?:{})\\s+\\w*(?i:{forms})", definers.join("|"))
}

fn grep_args(spec: &ToolSpec, pattern: &str) -> Value {
    with_schema_names(spec, json!({ "pattern": pattern }))
}

/// Renames arguments to the names of the tool's schema; arguments that it does not have are left out.
fn with_schema_names(spec: &ToolSpec, args: Value) -> Value {
    let names: &[(&str, &[&str])] = &[
        ("pattern", &["pattern", "regex", "query"]),
        ("path", &["path", "file_path", "file"]),
        ("offset", &["offset", "start_line", "start"]),
        ("limit", &["limit", "max_lines", "lines"]),
    ];
    let Some(known) = spec.schema.get("properties").and_then(Value::as_object) else { return args };
    let mut renamed = Map::new();
    for (name, aliases) in names {
        let known_name = aliases.iter().find(|alias| known.contains_key(**alias));
        if let (Some(value), Some(known_name)) = (args.get(name), known_name) {
            renamed.insert((*known_name).to_owned(), value.clone());
        }
    }
    Value::Object(renamed)
}

fn shortened(text: &str) -> String {
    let mut line: String = text.chars().take(140).collect();
    if text.chars().nth(140).is_some() {
        line.push('…');
    }
    line
}
