//! A self-contained HTML page: the run tree as a timeline, with each run's transcript folded below it. All content is
//! escaped, and the page's policy forbids scripts and requests.

use std::fmt::Write;

use homing_core::{envelope::Envelope, run::Run, sanitize, tree::RunTree};

use crate::{commands::show::transcript, print_result, progress::figures};

const STYLE: &str = "body{font:14px/1.5 system-ui,sans-serif;max-width:70em;margin:2em auto;padding:0 1em;color:#222;background:#fff}\
pre{white-space:pre-wrap;overflow-wrap:anywhere;background:#f6f6f4;padding:1em;border-radius:4px}\
.lane{position:relative;height:1.6em;margin:2px 0}.bar{position:absolute;top:0;bottom:0;border-radius:3px;min-width:2px;opacity:.85}\
.lane span{position:absolute;left:.4em;white-space:nowrap;font-size:12px;line-height:1.9em}\
.done{background:#9bd19b}.failed{background:#eaa0a0}.exhausted,.timed_out{background:#f0d28a}.cancelled{background:#ccc}\
.running,.waiting,.queued,.interrupted{background:#a9c7ee}summary{cursor:pointer}\
@media(prefers-color-scheme:dark){body{background:#191919;color:#ddd}pre{background:#242424}.lane span{color:#111}}";

/// Returns the page.
pub(super) fn page(tree: &RunTree, envelope: &Envelope) -> String {
    let title = escaped(&format!("{} · {}", envelope.agent, envelope.status.name()));
    let mut out = format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" content=\"width=device-width\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n\
         <title>{title}</title><style>{STYLE}</style></head><body>\n<h1>{title}</h1>\n<p>{}</p>\n",
        escaped(&print_result::cost_line(envelope))
    );
    let _ = writeln!(out, "<h2>Answer</h2><pre>{}</pre>\n<h2>Timeline</h2>", escaped(&envelope.output));
    timeline(tree, envelope, &mut out);
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

/// Draws one lane per run, from its start to its end, on the root's time scale.
fn timeline(tree: &RunTree, envelope: &Envelope, out: &mut String) {
    let all = envelope.all();
    let runs: Vec<(&Run, &Envelope)> = all.iter().filter_map(|one| Some((tree.get(one.run)?, *one))).collect();
    let began = runs.iter().filter_map(|(run, _)| run.began()).min().unwrap_or(0);
    let end = |run: &Run, one: &Envelope| run.began().unwrap_or(began) + one.usage.wall_ms;
    let last = runs.iter().map(|(run, one)| end(run, one)).max().unwrap_or(began + 1);
    let whole = (last.saturating_sub(began)).max(1) as f64;
    for (run, one) in runs {
        let from = run.began().unwrap_or(last).saturating_sub(began) as f64 / whole * 100.0;
        let width = (one.usage.wall_ms as f64 / whole * 100.0).min(100.0 - from).max(0.2);
        let label = escaped(&format!("{} {} {}", one.place, one.agent, figures::time(one.usage.wall_ms)));
        let _ = writeln!(
            out,
            "<div class=\"lane\"><div class=\"bar {}\" style=\"left:{from:.2}%;width:{width:.2}%\"></div><span>{label}</span></div>",
            one.status.name()
        );
    }
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
}
