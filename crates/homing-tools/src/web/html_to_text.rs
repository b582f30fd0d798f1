//! Converts HTML to text. It processes a stream of tags and builds no tree, so that no page can cause deep recursion or
//! quadratic work.

use std::convert::Infallible;

use html5gum::{
    Span, Tokenizer,
    emitters::callback::{CallbackEmitter, CallbackEvent},
};
use reqwest::Url;

use homing_core::sanitize::is_invisible;

/// Maximum size of the text; expanded links can make it longer than the page.
const MAX_TEXT: usize = 1024 * 1024;
/// Minimum length of the main part; if it is shorter, the whole page is used.
const MIN_MAIN: usize = 200;

/// Converts a page to text, with headings, lists, links and code as in Markdown.
pub(crate) fn to_text(html: &str, base: &Url) -> String {
    let mut page = PageText::new(base);
    let mut emitter = CallbackEmitter::new(|event: CallbackEvent<'_>, _: Span<()>| -> Option<Infallible> {
        page.event(&event);
        None
    });
    // The contents of scripts, styles and the like are no tags.
    emitter.naively_switch_states(true);
    let Ok(()) = Tokenizer::new_with_emitter(html, emitter).finish();
    page.finish()
}

/// A start tag, and its attributes as far as they have been read.
#[derive(Default)]
struct StartTag {
    name: String,
    attributes: Vec<(String, String)>,
}

impl StartTag {
    /// Returns the value of an attribute. Of several with the same name the first counts.
    fn attribute(&self, name: &str) -> Option<&str> {
        self.attributes.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }
}

/// The text of a page while it is converted.
struct PageText {
    base: Url,
    out: String,
    tag: StartTag,
    title: String,
    /// The element whose contents are skipped, and its nesting depth.
    skipping: Option<(String, usize)>,
    in_title: bool,
    in_pre: bool,
    /// The start of an open link's text, and the link's address.
    link: Option<(usize, String)>,
    /// The element, start and end of the main part.
    main: Option<(String, usize, Option<usize>)>,
}

impl PageText {
    fn new(base: &Url) -> Self {
        Self {
            base: base.clone(),
            out: String::new(),
            tag: StartTag::default(),
            title: String::new(),
            skipping: None,
            in_title: false,
            in_pre: false,
            link: None,
            main: None,
        }
    }

    fn event(&mut self, event: &CallbackEvent<'_>) {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        match event {
            CallbackEvent::OpenStartTag { name } => {
                self.tag = StartTag { name: text(name), ..StartTag::default() };
            }
            CallbackEvent::AttributeName { name } => self.tag.attributes.push((text(name), String::new())),
            CallbackEvent::AttributeValue { value } => {
                if let Some((_, known)) = self.tag.attributes.last_mut() {
                    known.push_str(&String::from_utf8_lossy(value));
                }
            }
            CallbackEvent::CloseStartTag { self_closing } => {
                let tag = std::mem::take(&mut self.tag);
                self.start_tag(&tag, *self_closing);
            }
            CallbackEvent::EndTag { name } => self.end_tag(&text(name)),
            CallbackEvent::String { value } => self.text(&String::from_utf8_lossy(value)),
            CallbackEvent::Comment { .. } | CallbackEvent::Doctype { .. } | CallbackEvent::Error(_) => (),
        }
    }

    fn text(&mut self, text: &str) {
        if self.in_title {
            let free = 300_usize.saturating_sub(self.title.chars().count());
            self.title.extend(text.chars().filter(|&it| it != '\n' && it != '\t' && is_shown(it)).take(free));
        } else if self.skipping.is_none() && self.out.len() < MAX_TEXT {
            if self.in_pre {
                self.out.extend(text.chars().filter(|&it| is_shown(it)));
            } else {
                self.words(text);
            }
        }
    }

    fn words(&mut self, text: &str) {
        for character in text.chars().filter(|&it| is_shown(it)) {
            if !character.is_whitespace() {
                self.out.push(character);
            } else if !self.out.is_empty() && !self.out.ends_with([' ', '\n']) {
                self.out.push(' ');
            }
        }
    }

    fn start_tag(&mut self, tag: &StartTag, self_closing: bool) {
        match tag.name.as_str() {
            "title" => self.in_title |= self.title.is_empty(),
            "textarea" => (),
            // Scripts and the like are never closed by their start tag.
            name => {
                let closed = self_closing && !is_raw(name);
                if !self.skip_start(name, closed) && self.out.len() < MAX_TEXT {
                    self.start(tag);
                }
            }
        }
    }

    fn end_tag(&mut self, name: &str) {
        if name == "title" {
            self.in_title = false;
        } else if !self.skip_end(name) {
            self.end(name);
        }
    }

    /// Returns true if the tag belongs to skipped content.
    fn skip_start(&mut self, name: &str, closed: bool) -> bool {
        match &mut self.skipping {
            Some((skipped, open)) => *open += usize::from(skipped == name && !closed),
            None if is_skipped(name) && !closed => self.skipping = Some((name.to_owned(), 1)),
            None => return false,
        }
        true
    }

    fn skip_end(&mut self, name: &str) -> bool {
        let Some((skipped, open)) = &mut self.skipping else { return false };
        if skipped == name {
            *open -= 1;
            if *open == 0 {
                self.skipping = None;
            }
        }
        true
    }

    fn start(&mut self, tag: &StartTag) {
        let name = tag.name.as_str();
        match name {
            "h1" | "h2" | "h3" | "h4" | "h5" | "h6" => {
                self.lines(2);
                let level = usize::from(name.as_bytes()[1] - b'0');
                self.out.push_str(&"#".repeat(level));
                self.out.push(' ');
            }
            "li" => {
                self.lines(1);
                self.out.push_str("- ");
            }
            "br" | "tr" | "dt" | "dd" => self.lines(1),
            "td" | "th" => self.words(" | "),
            "hr" => {
                self.lines(2);
                self.out.push_str("---");
                self.lines(2);
            }
            "pre" => {
                self.lines(2);
                self.out.push_str("```\n");
                self.in_pre = true;
            }
            "code" if !self.in_pre => self.out.push('`'),
            "a" => {
                self.end("a");
                self.link = tag.attribute("href").map(|href| (self.out.len(), href.to_owned()));
            }
            "img" => {
                if let Some(alt) = tag.attribute("alt").filter(|alt| !alt.trim().is_empty()) {
                    let alt = format!("[image: {}]", alt.trim());
                    self.words(&alt);
                }
            }
            "main" | "article" => {
                self.lines(2);
                // `main` is preferred to `article`, of which there may be several.
                let better = self.main.as_ref().is_none_or(|(kind, ..)| kind == "article" && name == "main");
                if better {
                    self.main = Some((name.to_owned(), self.out.len(), None));
                }
            }
            name if is_block(name) => self.lines(2),
            _ => (),
        }
    }

    fn end(&mut self, name: &str) {
        match name {
            "pre" if self.in_pre => {
                self.in_pre = false;
                self.lines(1);
                self.out.push_str("```");
                self.lines(2);
            }
            "code" if !self.in_pre => self.out.push('`'),
            "a" => self.end_link(),
            "main" | "article" => {
                self.lines(2);
                let at = self.out.len();
                if let Some((kind, _, end)) = &mut self.main
                    && kind == name
                {
                    *end = Some(at);
                }
            }
            name if is_block(name) || matches!(name, "h1" | "h2" | "h3" | "h4" | "h5" | "h6" | "tr") => self.lines(2),
            _ => (),
        }
    }

    fn end_link(&mut self) {
        let Some((from, href)) = self.link.take() else { return };
        let text = self.out.get(from..).unwrap_or_default().trim();
        let target = self.base.join(&href).ok().filter(|url| matches!(url.scheme(), "http" | "https"));
        let Some(target) = target.filter(|url| url.as_str().len() < 500) else { return };
        if text.is_empty() || text.contains('\n') {
            return;
        }
        let link = format!("[{text}]({target})");
        self.out.truncate(from);
        self.out.push_str(&link);
    }

    /// Ends the current line with `count` line breaks: 1, or 2 for an empty line.
    fn lines(&mut self, count: usize) {
        if self.in_pre {
            return;
        }
        let trimmed = self.out.trim_end_matches([' ', '\n']).len();
        let kept = self.out[trimmed..].matches('\n').count().max(count).min(2);
        self.out.truncate(trimmed);
        if trimmed > 0 {
            self.out.push_str(&"\n".repeat(kept));
        }
    }

    fn finish(self) -> String {
        let main = self.main.as_ref().and_then(|(_, from, to)| self.out.get(*from..to.unwrap_or(self.out.len())));
        let body = main.filter(|main| main.trim().len() >= MIN_MAIN).unwrap_or(&self.out).trim();
        let title = self.title.split_whitespace().collect::<Vec<_>>().join(" ");
        if title.is_empty() { body.to_owned() } else { format!("{title}\n\n{body}") }
    }
}

/// Elements whose contents are raw text up to the end tag, and not shown.
fn is_raw(name: &str) -> bool {
    matches!(name, "style" | "xmp" | "iframe" | "noembed" | "noframes" | "noscript" | "script")
}

/// Elements that are not part of a page's contents.
fn is_skipped(name: &str) -> bool {
    is_raw(name)
        || matches!(
            name,
            "nav" | "footer" | "aside" | "svg" | "template" | "object" | "select" | "dialog" | "canvas" | "math"
        )
}

fn is_block(name: &str) -> bool {
    matches!(
        name,
        "p" | "div"
            | "section"
            | "header"
            | "ul"
            | "ol"
            | "dl"
            | "table"
            | "blockquote"
            | "figure"
            | "figcaption"
            | "details"
            | "summary"
            | "address"
            | "fieldset"
            | "form"
            | "body"
            | "caption"
    )
}

/// Drops control and invisible characters, which could hide instructions from a human reader.
fn is_shown(character: char) -> bool {
    matches!(character, '\n' | '\t') || !(character.is_control() || is_invisible(character))
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    fn check(html: &str, expected: &str) {
        let base = Url::parse("https://example.org/docs/").unwrap();
        assert_eq!(to_text(html, &base), expected);
    }

    #[test]
    fn page_becomes_readable_text() {
        check(
            "<!doctype html><html><head><title>The\n Title</title><style>p{}</style><script>if (a<b) x()</script></head>
             <body><nav><a href=/>Home</a></nav><h1>One &amp; two</h1><p>Some  <b>bold</b>
             words, <a href='../api?x=1&y'>a link</a>.<ul><li>first<li>second</ul>
             <pre>let a  =\n  1;</pre><p>End <code>x</code><br>next<footer>bottom</footer></body>",
            "The Title\n\n# One & two\n\nSome bold words, [a link](https://example.org/api?x=1&y).\n\n- first\n- second\n\n\
             ```\nlet a  =\n  1;\n```\n\nEnd `x`\nnext",
        );
        check("<table><tr><td>a<td>b<tr><td>c</table>", "| a | b\n| c");
        check("<a href='javascript:x'>no</a> <img alt='a cat' src=x>", "no [image: a cat]");
    }

    #[test]
    fn main_part_is_preferred() {
        let words = "content ".repeat(40);
        check(&format!("<div>menu</div><main><p>{words}</main><div>bottom</div>"), words.trim());
    }

    #[test]
    fn hidden_characters_are_dropped() {
        check("a\u{e0041}b\u{200b}c\u{1b}[31m", "abc[31m");
    }

    #[test]
    fn hostile_pages_take_linear_time() {
        let base = Url::parse("https://example.org/").unwrap();
        let attributes: String = (0..150_000).map(|at| format!("a{at} ")).collect();
        for html in [
            "<div>".repeat(30_000),
            "<b a=1><i b=2><p>".repeat(10_000),
            "<a href=x>y".repeat(20_000),
            "<nav>".repeat(30_000),
            "<".repeat(100_000),
            "&amp".repeat(40_000),
            "<!--".repeat(40_000),
            format!("<p {attributes}>"),
            "<br> ".repeat(30_000),
        ] {
            let started = Instant::now();
            assert!(to_text(&html, &base).len() < 3 * 1024 * 1024);
            assert!(started.elapsed().as_secs() < 10, "{:?}: {:?}", &html[..10], started.elapsed());
        }
    }
}
