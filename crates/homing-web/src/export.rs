//! One tree as a file: the web interface's own page with the records inside. It needs no server and reaches no network.

use base64::{Engine, engine::general_purpose::STANDARD};
use flate2::Compression;
use sha2::{Digest, Sha256};

use crate::{assets, gzip};

/// Returns a page that shows a tree as the web interface does. `records` is a JSON object whose `records` are those of the tree,
/// such as a cassette.
///
/// The page's policy lets it execute only its own script, and forbids every request: a hostile text in a record can send nothing.
pub fn page(title: &str, records: &str) -> String {
    // Within a script element only `</script` would end it; within JSON, `<` occurs in strings alone.
    let script = assets::SCRIPT.replace("</script", "<\\/script");
    let style = assets::STYLE.replace("</style", "<\\/style");
    let (script_hash, style_hash) = (hash(&script), hash(&style));
    let records = records.replace('<', "\\u003c");
    let fold = STANDARD.encode(gzip::encode(assets::FOLD, Compression::best()));
    let title = escaped(title);
    format!(
        "<!doctype html>
<html lang=\"en\">
<head>
<meta charset=\"utf-8\">
<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; script-src '{script_hash}' 'wasm-unsafe-eval'; \
         style-src '{style_hash}'; img-src data:; base-uri 'none'; form-action 'none'\">
<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">
<meta name=\"color-scheme\" content=\"light dark\">
<meta name=\"referrer\" content=\"no-referrer\">
<title>{title}</title>
<style>{style}</style>
</head>
<body class=\"exported\">
<div id=\"app\"></div>
<noscript>This page needs JavaScript. `homing export --format html` writes one that does not.</noscript>
<script type=\"application/json\" id=\"records\">{records}</script>
<script type=\"text/plain\" id=\"fold\">{fold}</script>
<script type=\"module\">{script}</script>
</body>
</html>
"
    )
}

/// Returns the source of a content security policy that allows exactly this text.
fn hash(text: &str) -> String {
    format!("sha256-{}", STANDARD.encode(Sha256::digest(text)))
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_cannot_leave_their_element() {
        let records = r#"{"records":[{"text":"</script><script>alert(1)</script><!--"}]}"#;
        let page = page("</title><script>x", records);
        assert_eq!(page.matches("<script").count(), 3, "only the page's own elements");
        assert_eq!(page.matches("</script").count(), 3);
        let start = page.find("id=\"records\">").expect("the records") + "id=\"records\">".len();
        let text = &page[start..start + page[start..].find("</script>").expect("their end")];
        let (embedded, given): (serde_json::Value, serde_json::Value) =
            (serde_json::from_str(text).expect("JSON"), serde_json::from_str(records).expect("JSON"));
        assert_eq!(embedded, given);
    }
}
