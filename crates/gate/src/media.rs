//! Media types of files, by the ends of their names.
//!
//! A type from the table of `mime_guess`, but for names that mean something else today ([`CORRECTED`]), and
//! for those that the configuration names. Start at [`MediaTypes::of`].

use ringroad_http::FieldBlock;
use ringroad_settings::{Key, Section, Value, value};
use std::path::Path;

/// The key of types by extension.
pub const TYPES: Key = Key {
    name: "types",
    form: "table, as `{ rpm = \"application/x-rpm\", \"*\" = \"text/plain\" }`",
    default: "-",
    meaning: "Media types by the end of a file's name, before the built-in ones; `\"*\"` is for names that neither knows. A type may have its own `charset`.",
};

/// The key of the charset.
pub const CHARSET: Key = Key {
    name: "charset",
    form: "name, as `\"utf-8\"`, or false",
    default: "-",
    meaning: "The charset that is told for files of a `text/` type, HTML, XML and CSS included; `false` tells none. By default `utf-8`, but none for HTML, XML and CSS: these documents name theirs.",
};

/// What `types` and `charset` say.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MediaTypes {
    /// By extension, in lower case; those that come first count.
    types: Vec<(String, String)>,
    charset: Charset,
}

/// The charset of types that have none of their own.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
enum Charset {
    /// UTF-8 for text, where the document has no declaration.
    #[default]
    Undeclared,
    /// None.
    Off,
    /// This one for all text.
    All(String),
}

/// Names that are something else today than in the table, with what IANA, nginx and browsers take them for.
const CORRECTED: &[(&str, &str)] = &[
    ("3mf", "model/3mf"),
    ("cjs", "text/javascript"),
    ("m2ts", "video/mp2t"),
    ("m4a", "audio/mp4"),
    ("md", "text/markdown"),
    ("mjs", "text/javascript"),
    ("mtl", "model/mtl"),
    ("mts", "video/mp2t"),
    ("obj", "model/obj"),
    ("otf", "font/otf"),
    ("ply", "model/ply"),
    ("rpm", "application/x-rpm"),
    ("stl", "model/stl"),
    ("tgz", "application/gzip"),
    // A stream of MPEG, as players ask for it: sources in TypeScript are not what servers send.
    ("ts", "video/mp2t"),
    ("usdz", "model/vnd.usdz+zip"),
    ("woff", "font/woff"),
    ("zst", "application/zstd"),
];

/// The type of files of which the name says nothing.
const UNKNOWN: &str = "application/octet-stream";

impl MediaTypes {
    /// Returns the media type that a file's name says, with its charset where one is told.
    pub fn of(&self, name: &str) -> String {
        let extension = Path::new(name).extension().and_then(|end| end.to_str()).unwrap_or_default();
        let extension = extension.to_ascii_lowercase();
        let own = |wanted: &str| {
            let own = self.types.iter().find(|(extension, _)| extension == wanted);
            own.map(|(_, media_type)| media_type.as_str())
        };
        let corrected = || {
            let corrected = CORRECTED.iter().find(|(known, _)| *known == extension);
            corrected.map(|(_, media_type)| *media_type)
        };
        let guess = || mime_guess::from_ext(&extension).first_raw();
        let known =
            if extension.is_empty() { None } else { own(&extension).or_else(corrected).or_else(guess) };
        let media_type = known.or_else(|| own("*")).unwrap_or(UNKNOWN);
        match self.charset_of(media_type) {
            Some(charset) => format!("{media_type}; charset={charset}"),
            None => media_type.to_owned(),
        }
    }

    /// Returns the charset to be told beside a type.
    fn charset_of(&self, media_type: &str) -> Option<&str> {
        let (essence, parameters) = media_type.split_once(';').unwrap_or((media_type, ""));
        let essence = essence.trim().to_ascii_lowercase();
        if !essence.starts_with("text/") || parameters.to_ascii_lowercase().contains("charset") {
            return None;
        }
        match &self.charset {
            Charset::All(name) => Some(name),
            Charset::Off => None,
            // Without one, browsers guess from the bytes (WHATWG MIME Sniffing), and what is written today is
            // UTF-8. But a charset in the head wins over the one that a document declares (HTML §13.2.3.2,
            // RFC 7303 §3, `@charset` in CSS Syntax §3.2).
            Charset::Undeclared => (!declares_charset(&essence)).then_some("utf-8"),
        }
    }

    /// Reads `types` and `charset`. What is not written is as in `outer`; types of the two are joined.
    pub fn read(section: &Section<'_>, outer: &MediaTypes) -> MediaTypes {
        let mut types = section.table("types").map(|table| read_types(&table)).unwrap_or_default();
        types.extend(outer.types.iter().cloned());
        let charset = section.read("charset", charset).unwrap_or_else(|| outer.charset.clone());
        MediaTypes { types, charset }
    }
}

/// Types of text that is XML or HTML, or names its charset as CSS does.
const DECLARING: &[&str] = &[
    "text/css",
    "text/html",
    "text/mathml",
    "text/scriptlet",
    "text/vnd.wap.wml",
    "text/webviewhtml",
    "text/x-component",
    "text/x-html-insertion",
    "text/x-ms-contact",
    "text/x-ms-group",
    "text/x-opml",
    "text/x-suse-ymp",
    "text/xml",
    "text/xml-external-parsed-entity",
    "text/xsl",
];

/// Returns whether documents of a type name their charset themselves.
fn declares_charset(essence: &str) -> bool {
    DECLARING.contains(&essence) || essence.ends_with("+xml")
}

fn read_types(table: &Section<'_>) -> Vec<(String, String)> {
    let mut types = Vec::new();
    for (name, value) in table.pairs() {
        let extension = name.strip_prefix('.').unwrap_or(name).to_ascii_lowercase();
        let is_end = !extension.is_empty() && !extension.contains(['.', '/']);
        match value::text(value).and_then(|text| media_type(&text)) {
            Ok(_) if !is_end => {
                table.mistake(
                    name,
                    "expected the end of a name, as `rpm`: one behind the last point, or \"*\"",
                );
            }
            Ok(media_type) => types.push((extension, media_type)),
            Err(what) => table.mistake(name, what),
        }
    }
    types
}

fn media_type(text: &str) -> Result<String, String> {
    let (essence, _) = text.split_once(';').unwrap_or((text, ""));
    let is_token = |part: &str| !part.is_empty() && FieldBlock::of([(part, "0")]).is_ok();
    let is_type = essence.trim().split_once('/').is_some_and(|(kind, name)| is_token(kind) && is_token(name));
    if is_type && FieldBlock::of([("X", text)]).is_ok() {
        return Ok(text.to_owned());
    }
    Err(format!("expected a media type, as \"text/plain\", found {text:?}"))
}

fn charset(value: &Value<'_>) -> Result<Charset, String> {
    let expected = || value::found("the name of a charset, as \"utf-8\", or false", value);
    match (value.as_bool(), value.as_str()) {
        (Some(false), _) => Ok(Charset::Off),
        (_, Some(name)) if !name.is_empty() && FieldBlock::of([(name, "0")]).is_ok() => {
            Ok(Charset::All(name.to_owned()))
        }
        _ => Err(expected()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documents_that_name_their_charset_have_none_in_their_type() {
        let types = MediaTypes::default();
        for (name, expected) in [
            ("a.html", "text/html"),
            ("a.HTM", "text/html"),
            ("a.xml", "text/xml"),
            ("a.xsl", "text/xml"),
            ("a.dtd", "text/xml"),
            ("a.xhtml", "application/xhtml+xml"),
            ("a.svg", "image/svg+xml"),
            ("a.rss", "application/rss+xml"),
            ("a.atom", "application/atom+xml"),
            ("a.CSS", "text/css"),
            ("a.mml", "text/mathml"),
            ("a.opml", "text/x-opml"),
            ("a.ymp", "text/x-suse-ymp"),
            ("a.htc", "text/x-component"),
            ("a.js", "text/javascript; charset=utf-8"),
            ("a.mjs", "text/javascript; charset=utf-8"),
            ("a.txt", "text/plain; charset=utf-8"),
            ("a.csv", "text/csv; charset=utf-8"),
            ("a.vtt", "text/vtt; charset=utf-8"),
            ("a.md", "text/markdown; charset=utf-8"),
            ("a.json", "application/json"),
            ("a.wasm", "application/wasm"),
            ("a.webp", "image/webp"),
            ("a.woff2", "font/woff2"),
            ("a.rpm", "application/x-rpm"),
            ("a.ts", "video/mp2t"),
            ("a.stl", "model/stl"),
            ("a.obj", "model/obj"),
            ("a.tar.gz", "application/gzip"),
            ("README", "application/octet-stream"),
            (".html", "application/octet-stream"),
            ("a.", "application/octet-stream"),
        ] {
            assert_eq!(types.of(name), expected, "{name}");
        }
    }

    #[test]
    fn types_and_charset_are_those_of_the_configuration() {
        let of = |extension: &str, media_type: &str| (extension.to_owned(), media_type.to_owned());
        let types =
            vec![of("ts", "text/plain"), of("html", "text/html; charset=iso-8859-1"), of("*", "text/plain")];
        for (charset, plain, page, script) in [
            (Charset::Undeclared, "text/plain; charset=utf-8", "text/xml", "text/javascript; charset=utf-8"),
            (Charset::Off, "text/plain", "text/xml", "text/javascript"),
            (
                Charset::All("koi8-r".to_owned()),
                "text/plain; charset=koi8-r",
                "text/xml; charset=koi8-r",
                "text/javascript; charset=koi8-r",
            ),
        ] {
            let types = MediaTypes { types: types.clone(), charset };
            for (name, expected) in [
                ("a.TS", plain),
                ("README", plain),
                ("a.unheard-of", plain),
                ("a.xml", page),
                ("a.js", script),
                ("a.html", "text/html; charset=iso-8859-1"),
                ("a.png", "image/png"),
            ] {
                assert_eq!(types.of(name), expected, "{name} {types:?}");
            }
        }
    }

    #[test]
    fn a_type_is_two_tokens_and_goes_into_a_line() {
        for good in ["text/plain", "a/b+c", "text/html; charset=x", "text/html;charset=\"x\""] {
            assert!(media_type(good).is_ok(), "{good}");
        }
        for bad in ["", "text", "/", "text/", "/plain", "te xt/plain", "a/b/c", "text/plain\r\nX: 1"] {
            assert!(media_type(bad).is_err(), "{bad}");
        }
    }
}
