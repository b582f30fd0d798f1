//! A self-contained HTML page: the task, the answer, the run tree as a timeline, and each run's transcript folded below it. All
//! content is escaped, and the page's policy forbids scripts and requests.

use std::fmt::Write;

use homing_core::{envelope::Envelope, run::Run, sanitize, tree::RunTree};
use pulldown_cmark::{CowStr, Event, Options, Parser, Tag, TagEnd, html};

use crate::{
    commands::show::transcript,
    print_result,
    progress::{figures, first_line},
};

const STYLE: &str = ":root{color-scheme:light dark;--text:#222;--page:#fff;--box:#f4f4f1;--line:#ccc;--done:#9bd19b;--failed:#eaa0a0;\
--limit:#f0d28a;--stopped:#c8c8c8;--open:#a9c7ee}\
@media(prefers-color-scheme:dark){:root{--text:#ddd;--page:#181818;--box:#242424;--line:#444;--done:#2f6b3a;--failed:#8a3636;--limit:#7a6221;\
--stopped:#555;--open:#2f5687}}\
body{font:14px/1.5 system-ui,sans-serif;max-width:70em;margin:2em auto;padding:0 1em;color:var(--text);background:var(--page)}\
a{color:inherit}pre,.task{white-space:pre-wrap;overflow-wrap:anywhere;background:var(--box);padding:1em;border-radius:4px}\
pre{overflow-x:auto}table{border-collapse:collapse}td,th{border:1px solid var(--line);padding:.2em .5em}\
.lane{display:flex;gap:.6em;align-items:center;margin:2px 0}.lane a{flex:0 0 16em;overflow:hidden;text-overflow:ellipsis;white-space:nowrap}\
.track{position:relative;flex:1;height:1.4em;background:var(--box);border-radius:3px}\
.bar{position:absolute;top:0;bottom:0;border-radius:3px;min-width:2px}\
.axis{margin-top:.4em;color:inherit}.axis .track{height:1.6em;background:none;border-top:1px solid var(--line)}\
.axis span{position:absolute;font-size:12px;transform:translateX(-50%)}.axis span:first-child{transform:none}.axis span:last-child{transform:translateX(-100%)}\
.done{background:var(--done)}.failed{background:var(--failed)}.exhausted,.timed_out{background:var(--limit)}.cancelled{background:var(--stopped)}\
.running,.waiting,.queued,.interrupted{background:var(--open)}summary{cursor:pointer;overflow-wrap:anywhere}\
@media(max-width:40em){body{margin:1em auto}.lane{display:block}.lane a{display:block}.axis a{display:none}}";

/// Number of sections of the time axis.
const TICKS: u64 = 4;

/// Returns the page.
pub(super) fn page(tree: &RunTree, envelope: &Envelope) -> String {
    let title = escaped(&format!("{} · {}", envelope.agent, envelope.status.name()));
    let mut out = format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" content=\"width=device-width\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n\
         <title>{title}</title><style>{STYLE}</style></head><body>\n<h1>{title}</h1>\n<p>{}</p>\n",
        escaped(&print_result::cost_line(envelope))
    );
    if let Some(root) = tree.get(envelope.run) {
        let _ = writeln!(out, "<h2>Task</h2>\n<div class=\"task\">{}</div>", escaped(root.spawned.task.trim()));
    }
    // The answer of a team is a summary of its members' answers, or all of them as data: the members come first.
    if homing_teams::is_team(envelope) {
        timeline(tree, envelope, &mut out);
        answer(envelope, &mut out);
    } else {
        answer(envelope, &mut out);
        timeline(tree, envelope, &mut out);
    }
    out.push_str("<h2>Runs</h2>\n");
    for one in envelope.all() {
        if let Some(run) = tree.get(one.run) {
            let head = escaped(&format!("{} {} · {}", one.place, one.agent, print_result::cost_line(one)));
            let body = escaped(&transcript(run, one, tree));
            let _ =
                writeln!(out, "<details id=\"r{}\"><summary>{head}</summary><pre>{body}</pre></details>", one.place);
        }
    }
    out.push_str("</body></html>\n");
    out
}

/// Adds the answer as text, and its data folded.
fn answer(envelope: &Envelope, out: &mut String) {
    let is_data = serde_json::from_str::<serde_json::Value>(&envelope.output).is_ok_and(|value| !value.is_string());
    if !envelope.output.trim().is_empty() {
        let text = if is_data { folded("Answer as JSON", &envelope.output) } else { markdown(&envelope.output) };
        let _ = writeln!(out, "<h2>Answer</h2>\n{text}");
    }
    if let Some(data) = envelope.data.as_ref().filter(|_| !is_data) {
        out.push_str(&folded("Data", &format!("{data:#}")));
    }
    if let Some(why) = print_result::why(envelope) {
        let _ = writeln!(out, "<pre>{}</pre>", escaped(&why));
    }
}

fn folded(title: &str, text: &str) -> String {
    format!("<details><summary>{title}</summary><pre>{}</pre></details>\n", escaped(text))
}

/// Renders Markdown. Markup in it is shown as text, links lead to web pages only, and pictures are replaced by their descriptions.
fn markdown(text: &str) -> String {
    let text = sanitize::inert(text);
    let options = Options::ENABLE_TABLES | Options::ENABLE_STRIKETHROUGH | Options::ENABLE_TASKLISTS;
    let events = Parser::new_ext(&text, options).filter_map(|event| match event {
        Event::Html(markup) | Event::InlineHtml(markup) => Some(Event::Text(markup)),
        Event::Start(Tag::Image { .. }) | Event::End(TagEnd::Image) => None,
        Event::Start(Tag::Link { link_type, dest_url, id, .. }) => {
            let is_web = ["https://", "http://"].iter().any(|scheme| dest_url.starts_with(scheme));
            let dest_url = if is_web { dest_url } else { CowStr::Borrowed("#") };
            Some(Event::Start(Tag::Link { link_type, dest_url, title: CowStr::Borrowed(""), id }))
        }
        other => Some(other),
    });
    let mut out = String::new();
    html::push_html(&mut out, events);
    out
}

/// Draws one lane per run, from its start to its end, on the root's time scale, and the scale below them.
fn timeline(tree: &RunTree, envelope: &Envelope, out: &mut String) {
    out.push_str("<h2>Timeline</h2>\n");
    let all = envelope.all();
    let runs: Vec<(&Run, &Envelope)> = all.iter().filter_map(|one| Some((tree.get(one.run)?, *one))).collect();
    let began = runs.iter().filter_map(|(run, _)| run.began()).min().unwrap_or(0);
    let end = |run: &Run, one: &Envelope| run.began().unwrap_or(began) + one.usage.wall_ms;
    let last = runs.iter().map(|(run, one)| end(run, one)).max().unwrap_or(began + 1);
    let whole = last.saturating_sub(began).max(1);
    for (run, one) in runs {
        let from = run.began().unwrap_or(last).saturating_sub(began) as f64 / whole as f64 * 100.0;
        let width = (one.usage.wall_ms as f64 / whole as f64 * 100.0).min(100.0 - from).max(0.2);
        let label = escaped(&format!("{} {} {}", one.place, one.agent, figures::time(one.usage.wall_ms)));
        let task = escaped(&first_line(&run.spawned.task));
        let (place, status) = (&one.place, one.status.name());
        let _ = writeln!(
            out,
            "<div class=\"lane\" title=\"{task}\"><a href=\"#r{place}\">{label}</a><div class=\"track\">\
             <div class=\"bar {status}\" style=\"left:{from:.2}%;width:{width:.2}%\"></div></div></div>"
        );
    }
    let tick = |n: u64| {
        let left = n * 100 / TICKS;
        format!("<span style=\"left:{left}%\">{}</span>", figures::time(whole * n / TICKS))
    };
    let ticks: String = (0..=TICKS).map(tick).collect();
    let _ = writeln!(out, "<div class=\"lane axis\"><a></a><div class=\"track\">{ticks}</div></div>");
}

/// Escapes text for HTML.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in sanitize::inert(text).chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            other => out.push(other),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_cannot_become_markup() {
        let hostile = "<script>alert('x')</script>\" onload=\"y\u{1b}[31m";
        let shown = escaped(hostile);
        assert!(!shown.contains(['<', '>', '"', '\'', '\u{1b}']), "{shown}");
    }

    #[test]
    fn markdown_is_rendered_without_markup_of_its_author() {
        let text = "# Title\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\n<img src=x onerror=y> <b>bold</b> [x](javascript:alert(1)) \
                    [y](https://example.org) ![pic](https://example.org/p.png)\n\n```\n<i>\n```\n";
        let page = markdown(text);
        assert!(page.contains("<h1>Title</h1>") && page.contains("<td>1</td>"), "{page}");
        assert!(!page.contains("<img") && !page.contains("<b>") && !page.contains("javascript:"), "{page}");
        assert!(page.contains("href=\"https://example.org\"") && page.contains("&lt;i&gt;"), "{page}");
    }
}
