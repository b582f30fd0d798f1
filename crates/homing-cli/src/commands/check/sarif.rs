//! The report as SARIF 2.1.0, which code scanning services and editors read.

use std::{collections::BTreeMap, fmt::Write};

use homing_core::{
    diagnostic::{Diagnostic, Fix, Severity, TextEdit},
    sanitize,
};
use homing_load::CheckReport;
use serde_json::{Value, json};

use super::show::shown;

const SCHEMA: &str = "https://json.schemastore.org/sarif-2.1.0.json";

/// Returns the log: one run, with a rule for each kind of finding.
pub(super) fn log(report: &CheckReport) -> Value {
    let mut rules: BTreeMap<String, &Diagnostic> = BTreeMap::new();
    for diagnostic in &report.diagnostics {
        rules.entry(diagnostic.rule()).or_insert(diagnostic);
    }
    let ids: Vec<&String> = rules.keys().collect();
    let results: Vec<Value> = report.diagnostics.iter().map(|diagnostic| result(diagnostic, &ids)).collect();
    let driver = json!({
        "name": "homing",
        "version": env!("CARGO_PKG_VERSION"),
        "informationUri": env!("CARGO_PKG_REPOSITORY"),
        "rules": rules.iter().map(|(id, first)| rule(id, first)).collect::<Vec<_>>(),
    });
    let run = json!({"tool": {"driver": driver}, "columnKind": "unicodeCodePoints", "results": results});
    json!({"$schema": SCHEMA, "version": "2.1.0", "runs": [run]})
}

fn rule(id: &str, first: &Diagnostic) -> Value {
    json!({
        "id": id,
        "shortDescription": {"text": sanitize::inert_line(&first.template())},
        "defaultConfiguration": {"level": level(first.severity)},
    })
}

fn level(severity: Severity) -> &'static str {
    match severity {
        Severity::Error => "error",
        Severity::Warning => "warning",
        Severity::Info => "note",
    }
}

fn result(diagnostic: &Diagnostic, ids: &[&String]) -> Value {
    let id = diagnostic.rule();
    let hint = diagnostic.hint.as_ref().map(|hint| format!(" ({hint})")).unwrap_or_default();
    let mut result = json!({
        "ruleId": id,
        "ruleIndex": ids.binary_search(&&id).ok(),
        "level": level(diagnostic.severity),
        "message": {"text": sanitize::inert(&format!("{}{hint}", diagnostic.message))},
    });
    if diagnostic.path.is_some() {
        let mut place = json!({"artifactLocation": {"uri": uri(diagnostic)}});
        if diagnostic.line > 0 {
            place["region"] = json!({"startLine": diagnostic.line, "startColumn": diagnostic.column.max(1)});
        }
        result["locations"] = json!([{"physicalLocation": place}]);
        if let Some(fix) = &diagnostic.fix {
            result["fixes"] = json!([correction(fix, &uri(diagnostic))]);
        }
    }
    result
}

fn correction(fix: &Fix, uri: &str) -> Value {
    let replacement = |edit: &TextEdit| {
        json!({
            "deletedRegion": {
                "startLine": edit.line,
                "startColumn": edit.column,
                "endLine": edit.end_line,
                "endColumn": edit.end_column,
            },
            "insertedContent": {"text": edit.text},
        })
    };
    let replacements: Vec<Value> = fix.edits.iter().map(replacement).collect();
    json!({
        "description": {"text": fix.title},
        "artifactChanges": [{"artifactLocation": {"uri": uri}, "replacements": replacements}],
    })
}

/// Returns the path relative to the current folder, or as an absolute address, with reserved characters escaped.
fn uri(diagnostic: &Diagnostic) -> String {
    let path = shown(diagnostic);
    let mut uri = if path.starts_with('/') { "file://".to_owned() } else { String::new() };
    for byte in path.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'/' | b'-' | b'.' | b'_' | b'~' => uri.push(char::from(byte)),
            _ => _ = write!(uri, "%{byte:02X}"),
        }
    }
    uri
}
