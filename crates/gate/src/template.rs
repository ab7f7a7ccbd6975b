//! Texts with placeholders, for redirects, header lines, rewrites and the log: `https://{host}{path}`.
//!
//! A placeholder is a word of a closed list, or a family with a name (`{header.User-Agent}`). `{{` and `}}`
//! are braces. A template is parsed once, when the configuration is read; a misspelt word is a mistake then.

use std::fmt;

/// What a placeholder stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Variable {
    /// `http` or `https`, as the client speaks it.
    Scheme,
    /// The host that was asked for, without port: what a trusted proxy says counts.
    Host,
    /// That host with its port, if one was given.
    Authority,
    /// The path as it was sent.
    Path,
    /// What is behind the route's own path.
    Rest,
    /// The query, without its question mark.
    Query,
    /// `?` and the query, or nothing.
    QueryMark,
    /// The request target as it was sent.
    Target,
    /// The method.
    Method,
    /// `HTTP/1.1` or `HTTP/2.0`.
    Protocol,
    /// The client's address, behind trusted proxies.
    Client,
    /// The address of the other end of the connection.
    Peer,
    /// The request's id.
    Id,
    /// The name of the authenticated caller.
    Subject,
    /// The trace's id.
    Trace,
    /// The route's path or name.
    Route,
    /// The time when the request began, as Apache writes it: `23/Nov/2026:19:00:00 +0000`.
    Time,
    /// The same as RFC 3339.
    Time3339,
    /// The status of the answer.
    Status,
    /// Bytes of the body that were sent.
    Bytes,
    /// Seconds from the head's last byte to the end of the answer, with microseconds.
    Duration,
    /// The server behind that answered.
    Upstream,
    /// Seconds until the head of its answer.
    UpstreamDuration,
    /// What went wrong.
    Error,
    /// A header line of the request.
    Header(String),
    /// A header line of the answer.
    Answer(String),
    /// A cookie.
    Cookie(String),
    /// A value of the query, decoded.
    QueryValue(String),
}

/// Words that stand alone.
const WORDS: &[(&str, Variable)] = &[
    ("scheme", Variable::Scheme),
    ("host", Variable::Host),
    ("authority", Variable::Authority),
    ("path", Variable::Path),
    ("rest", Variable::Rest),
    ("query", Variable::Query),
    ("?query", Variable::QueryMark),
    ("target", Variable::Target),
    ("method", Variable::Method),
    ("protocol", Variable::Protocol),
    ("client", Variable::Client),
    ("peer", Variable::Peer),
    ("id", Variable::Id),
    ("subject", Variable::Subject),
    ("trace", Variable::Trace),
    ("route", Variable::Route),
    ("time", Variable::Time),
    ("time_rfc3339", Variable::Time3339),
    ("status", Variable::Status),
    ("bytes", Variable::Bytes),
    ("duration", Variable::Duration),
    ("upstream", Variable::Upstream),
    ("upstream_duration", Variable::UpstreamDuration),
    ("error", Variable::Error),
];

/// Words with a value that is known only when the answer is.
const OF_THE_ANSWER: &[&str] =
    &["status", "bytes", "duration", "upstream", "upstream_duration", "error", "answer."];

/// Where a template is used, and so which words it may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Use {
    /// Before there is an answer: redirects, rewrites, request headers.
    Request,
    /// When all is known: the log, headers of the answer.
    Answer,
}

/// A text with placeholders.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Template {
    pieces: Vec<Piece>,
    /// As it was written.
    text: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Piece {
    Text(String),
    Variable(Variable),
}

/// Gives placeholders their values.
pub trait Values {
    /// Appends the value of a variable; nothing where there is none.
    fn append(&self, variable: &Variable, out: &mut Vec<u8>);
}

impl Template {
    /// Parses a text.
    ///
    /// # Errors
    /// A brace without its partner, or an unknown word; says which words there are.
    pub fn parse(text: &str, used: Use) -> Result<Template, String> {
        let mut pieces = Vec::new();
        let mut plain = String::new();
        let mut rest = text;
        while let Some(at) = rest.find(['{', '}']) {
            let (before, behind) = rest.split_at(at);
            plain.push_str(before);
            if behind.starts_with("{{") || behind.starts_with("}}") {
                plain.push_str(behind.get(..1).unwrap_or_default());
                rest = behind.get(2..).unwrap_or_default();
                continue;
            }
            let inner = behind.strip_prefix('{').and_then(|behind| behind.split_once('}'));
            let Some((word, behind)) = inner else {
                return Err(format!(
                    "a brace without its partner in {text:?} (write {{{{ or }}}} for a brace)"
                ));
            };
            if !plain.is_empty() {
                pieces.push(Piece::Text(std::mem::take(&mut plain)));
            }
            pieces.push(Piece::Variable(variable(word, used)?));
            rest = behind;
        }
        plain.push_str(rest);
        if !plain.is_empty() {
            pieces.push(Piece::Text(plain));
        }
        Ok(Template { pieces, text: text.to_owned() })
    }

    /// Returns the text itself, if it has no placeholders.
    pub fn as_text(&self) -> Option<&str> {
        match self.pieces.as_slice() {
            [] => Some(""),
            [Piece::Text(text)] => Some(text),
            _ => None,
        }
    }

    /// Returns whether a variable is used.
    pub fn uses(&self, wanted: &Variable) -> bool {
        self.pieces.iter().any(|piece| matches!(piece, Piece::Variable(variable) if variable == wanted))
    }

    /// Returns the names of the answer's lines that are used.
    pub fn answer_lines(&self) -> impl Iterator<Item = &str> {
        self.pieces.iter().filter_map(|piece| match piece {
            Piece::Variable(Variable::Answer(name)) => Some(name.as_str()),
            _ => None,
        })
    }

    /// Appends the text with its values.
    pub fn append(&self, values: &impl Values, out: &mut Vec<u8>) {
        for piece in &self.pieces {
            match piece {
                Piece::Text(text) => out.extend_from_slice(text.as_bytes()),
                Piece::Variable(variable) => values.append(variable, out),
            }
        }
    }

    /// Returns the text with its values.
    pub fn render(&self, values: &impl Values) -> Vec<u8> {
        let mut out = Vec::new();
        self.append(values, &mut out);
        out
    }
}

fn variable(word: &str, used: Use) -> Result<Variable, String> {
    let late = OF_THE_ANSWER.iter().any(|own| word == *own || own.ends_with('.') && word.starts_with(own));
    if late && used == Use::Request {
        return Err(format!("{{{word}}} is not known yet here: the answer is not there"));
    }
    if let Some((_, variable)) = WORDS.iter().find(|(own, _)| *own == word) {
        return Ok(variable.clone());
    }
    match word.split_once('.') {
        Some((family, name)) if !name.is_empty() => match family {
            "header" => Ok(Variable::Header(name.to_owned())),
            "answer" => Ok(Variable::Answer(name.to_owned())),
            "cookie" => Ok(Variable::Cookie(name.to_owned())),
            "query" => Ok(Variable::QueryValue(name.to_owned())),
            _ => Err(unknown(word, used)),
        },
        _ => Err(unknown(word, used)),
    }
}

fn unknown(word: &str, used: Use) -> String {
    let early = |own: &&str| used == Use::Answer || !OF_THE_ANSWER.contains(own);
    let words: Vec<_> = WORDS.iter().map(|(own, _)| *own).filter(early).collect();
    format!(
        "{{{word}}} is not a placeholder (there are: {}, header.NAME, cookie.NAME, query.NAME)",
        words.join(", ")
    )
}

impl fmt::Display for Template {
    /// Returns the text as it was written.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    struct Fixed;

    impl Values for Fixed {
        fn append(&self, variable: &Variable, out: &mut Vec<u8>) {
            match variable {
                Variable::Host => out.extend_from_slice(b"example.org"),
                Variable::QueryMark => out.extend_from_slice(b"?a=b"),
                Variable::Header(name) => out.extend_from_slice(name.to_uppercase().as_bytes()),
                _ => {}
            }
        }
    }

    #[test]
    fn placeholders_get_their_values_and_doubled_braces_stay() {
        for (text, expected) in [
            ("", ""),
            ("/plain", "/plain"),
            ("https://{host}/x{?query}", "https://example.org/x?a=b"),
            ("{{{host}}}", "{example.org}"),
            ("[{header.x-a}][{id}]", "[X-A][]"),
        ] {
            let template = Template::parse(text, Use::Request).unwrap();
            assert_eq!(String::from_utf8(template.render(&Fixed)).unwrap(), expected, "{text}");
        }
    }

    #[test]
    fn a_misspelt_placeholder_is_a_mistake_that_names_the_others() {
        for text in ["{hots}", "{", "}", "a{b", "{header.}", "{other.x}", "{}"] {
            assert!(Template::parse(text, Use::Answer).is_err(), "{text}");
        }
        assert!(Template::parse("{hots}", Use::Request).unwrap_err().contains("host, authority"));
    }

    #[test]
    fn what_only_the_answer_knows_is_refused_before_it() {
        for text in ["{status}", "{bytes}", "{answer.Server}", "{upstream}"] {
            assert!(Template::parse(text, Use::Request).is_err(), "{text}");
            assert!(Template::parse(text, Use::Answer).is_ok(), "{text}");
        }
    }
}
