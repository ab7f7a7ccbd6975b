//! What people see when there is nothing to see: refusals, as a page to browsers and as a line to everybody else.

use crate::answer::{Answer, Asking};
use ringroad_http::{ContentType, EncodeError, Response, Status};
use std::fmt::Write;

/// How all pages of ours look.
pub(crate) const STYLE: &str = include_str!("page.css");

/// Text as it may stand in a page, also within quotes.
pub(crate) fn escape(text: &str) -> String {
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

/// A page with this title and content, both markup.
pub(crate) fn document(title: &str, content: &str) -> String {
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <title>{title}</title>\n<style>\n{STYLE}</style>\n{content}</html>\n"
    )
}

/// A page as an answer. Nothing in it may load or run anything.
pub(crate) fn html(status: Status, page: String) -> Result<Answer, EncodeError> {
    Answer::of(page).with(|response| {
        response
            .status(status)
            .header("Content-Type", "text/html; charset=utf-8")?
            .header("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'")?
            .header("X-Content-Type-Options", "nosniff")
    })
}

/// A refusal: what, and what that means here, as a sentence.
pub(crate) fn refusal(status: Status, asking: &Asking<'_>, what: &str) -> Answer {
    let plain = || {
        let mut line = String::new();
        // Writing to a string does not fail.
        let _ = writeln!(line, "{status}: {what}");
        let answer = Answer::of(line);
        Answer { response: answer.response.status(status).content_type(ContentType::Text), sent: answer.sent }
    };
    if !asking.html {
        return plain();
    }
    let id = asking.id_line.map(|_| format!("<p class=\"foot\">Request {}</p>\n", escape(asking.id())));
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

/// 404.
pub(crate) fn missing(asking: &Asking<'_>) -> Answer {
    refusal(Status::NOT_FOUND, asking, "There is nothing at this address.")
}

/// What a mistake of ours is answered with: nothing of it is told.
pub(crate) fn broken() -> Answer {
    Answer::empty(Response::empty(Status::INTERNAL_SERVER_ERROR))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_of_a_name_is_markup() {
        assert_eq!(
            escape("<a href=\"x\" title='&'>\u{7}"),
            "&lt;a href=&quot;x&quot; title=&#39;&amp;&#39;&gt;\u{fffd}"
        );
    }
}
