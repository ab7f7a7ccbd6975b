//! Pages of this server's own: refusals, as a page for browsers and as a line for other clients.

use crate::flow::Context;
use crate::media::MediaTypes;
use crate::template::{Values, Variable};
use crate::words;
use ringroad_http::{ContentType, EncodeError, Response, Status};
use ringroad_settings::Section;
use std::fmt::Write;
use std::sync::Arc;

/// The style of all pages.
pub const STYLE: &str = include_str!("page.css");

/// A page of more bytes is not kept in memory.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// Reads a file that a feature answers with, and the type that its name says.
///
/// # Errors
/// Says what is wrong with it.
pub fn file(section: &Section<'_>, name: &str) -> Result<(Arc<[u8]>, String), String> {
    let path = section.path(name);
    let told = |why: &dyn std::fmt::Display| format!("{}: {why}", path.display());
    let bytes = section.file(name)?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        return Err(told(&"larger than 1 MiB, the most for a page of this kind"));
    }
    Ok((bytes.into(), MediaTypes::default().of(name)))
}

/// Returns a text as it may stand in a page, also within quotes.
pub fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            // Names of files may have anything in them.
            other if other.is_control() => out.push('\u{fffd}'),
            other => out.push(other),
        }
    }
    out
}

/// Values for a text of a media type: what would be markup, or would end a string of JSON, is escaped in
/// them, so that no client writes into the text.
pub struct For<'v, V> {
    values: &'v V,
    text: Text,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Text {
    Plain,
    Markup,
    Json,
}

impl<'v, V: Values> For<'v, V> {
    /// Takes the values for a text of this type.
    pub fn new(media_type: &str, values: &'v V) -> For<'v, V> {
        let essence = media_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
        let is_of = |ends: [&str; 2]| ends.iter().any(|end| essence.ends_with(end));
        let text = match () {
            () if is_of(["/xml", "+xml"]) || essence == "text/html" => Text::Markup,
            () if is_of(["/json", "+json"]) => Text::Json,
            () => Text::Plain,
        };
        For { values, text }
    }
}

impl<V: Values> Values for For<'_, V> {
    fn append(&self, variable: &Variable, out: &mut Vec<u8>) {
        if self.text == Text::Plain {
            return self.values.append(variable, out);
        }
        let mut value = Vec::new();
        self.values.append(variable, &mut value);
        let value = String::from_utf8_lossy(&value);
        let escaped = match self.text {
            Text::Markup => escape(&value),
            // Within the quotes that the text has.
            _ => {
                let string = serde_json::to_string(&value).unwrap_or_default();
                let inside = string.strip_prefix('"').and_then(|string| string.strip_suffix('"'));
                inside.unwrap_or_default().to_owned()
            }
        };
        out.extend_from_slice(escaped.as_bytes());
    }
}

/// Returns a page with this title and content, both markup.
pub fn document(title: &str, content: &str) -> String {
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <title>{title}</title>\n<style>\n{STYLE}</style>\n{content}</html>\n"
    )
}

/// Returns a page as an answer. Nothing in it may load or run anything.
///
/// # Errors
/// None in practice: its lines are constants.
pub fn html(status: Status, page: String) -> Result<Response, EncodeError> {
    Response::new(page)
        .status(status)
        .header("Content-Type", "text/html; charset=utf-8")?
        .header("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'")?
        .header("X-Content-Type-Options", "nosniff")
}

/// Makes a refusal: the status, and its meaning here as a sentence. Its form follows from `Accept`, as `Vary`
/// says.
pub fn refusal(status: Status, context: &Context, what: &str) -> Response {
    let mut response = form(status, context, what);
    words::vary(&mut response, "Accept");
    response
}

/// Makes a refusal that may be over after this many seconds, which its text and its `Retry-After` say.
pub fn refusal_for(seconds: u64, status: Status, context: &Context, what: &str) -> Response {
    let unit = if seconds == 1 { "second" } else { "seconds" };
    let mut response = refusal(status, context, &format!("{what} Try again in {seconds} {unit}."));
    // A number is a value of a header line.
    let _ = response.set_header("Retry-After", seconds.to_string());
    response
}

/// Makes the refusal of a request that has no room for a line of this server.
pub fn no_room(context: &Context) -> Response {
    let what = "The request has more header lines than can be handed on.";
    refusal(Status::HEADER_FIELDS_TOO_LARGE, context, what)
}

fn form(status: Status, context: &Context, what: &str) -> Response {
    context.note_refusal();
    let plain = || {
        let mut line = String::new();
        // Writing to a string does not fail.
        let _ = writeln!(line, "{status}: {what}");
        Response::new(line).status(status).content_type(ContentType::Text)
    };
    if !context.html {
        return plain();
    }
    let id = context.shows_id.then(|| format!("<p class=\"foot\">Request {}</p>\n", escape(context.id())));
    let content = format!(
        "<main class=\"say\">\n<p class=\"code\">{}</p>\n<h1>{}</h1>\n<p>{}</p>\n{}</main>\n",
        status.code(),
        escape(status.reason()),
        escape(what),
        id.unwrap_or_default()
    );
    let title = format!("{} {}", status.code(), escape(status.reason()));
    html(status, document(&title, &content)).unwrap_or_else(|_| plain())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::template::{Template, Use};

    #[test]
    fn nothing_of_a_name_is_markup() {
        assert_eq!(
            escape("<a href=\"x\" title='&'>\u{7}"),
            "&lt;a href=&quot;x&quot; title=&#39;&amp;&#39;&gt;\u{fffd}"
        );
    }

    struct Sent;

    impl Values for Sent {
        fn append(&self, _: &Variable, out: &mut Vec<u8>) {
            out.extend_from_slice("</p>\"&\\\u{e9}".as_bytes());
        }
    }

    #[test]
    fn what_a_client_sends_is_no_markup_in_a_page_and_ends_no_string_of_json() {
        let text = Template::parse("{target}", Use::Answer).unwrap();
        for (media_type, expected) in [
            ("text/plain", "</p>\"&\\\u{e9}"),
            ("text/html", "&lt;/p&gt;&quot;&amp;\\\u{e9}"),
            ("Text/HTML; charset=utf-8", "&lt;/p&gt;&quot;&amp;\\\u{e9}"),
            ("application/xhtml+xml", "&lt;/p&gt;&quot;&amp;\\\u{e9}"),
            ("application/json", "</p>\\\"&\\\\\u{e9}"),
            ("application/problem+json", "</p>\\\"&\\\\\u{e9}"),
        ] {
            let rendered = String::from_utf8(text.render(&For::new(media_type, &Sent))).unwrap();
            assert_eq!(rendered, expected, "{media_type}");
        }
    }
}
