//! Bodies of forms as the trees that PHP makes of them: names with brackets become nested arrays, files are
//! stored and described.
//!
//! A worker of RoadRunner gets forms like this because its language parses none outside of a web server.
//! [`urlencoded`] reads `application/x-www-form-urlencoded`, [`multipart`] `multipart/form-data`.

use percent_encoding::percent_decode;
use ringroad_engine::fs::File;
use ringroad_engine::sync::bounded;
use ringroad_http::RequestBody;
use serde_json::{Map, Value, json};
use std::fmt;
use std::path::Path;
use tempfile::NamedTempFile;

/// Most fields and files of one form.
const FIELDS_MAX: usize = 10_000;
/// Most brackets of one name (PHP's `max_input_nesting_level` is 64; RoadRunner takes 127).
const DEPTH_MAX: usize = 127;
/// Most bytes of all fields that are no files.
const TEXT_BYTES_MAX: usize = 16 << 20;
/// PHP's number for an upload without an error (`UPLOAD_ERR_OK`), and for one without a file
/// (`UPLOAD_ERR_NO_FILE`).
const OK: u8 = 0;
const NO_FILE: u8 = 4;

/// A form that was read.
#[derive(Debug, Default)]
pub struct Form {
    /// Its fields, as a tree of objects, lists and texts.
    pub fields: Value,
    /// The descriptions of its files, in the same shape; `None` without files.
    pub uploads: Option<Value>,
    /// The files, which exist until this is dropped.
    pub files: Vec<Upload>,
}

/// A file of a form.
#[derive(Debug)]
pub struct Upload(NamedTempFile);

impl Upload {
    /// Returns where it is stored.
    pub fn path(&self) -> &Path {
        self.0.path()
    }
}

/// Why a body is no form.
#[derive(Debug)]
pub enum BadForm {
    /// The bytes are no form, or break a bound.
    Malformed(String),
    /// A file cannot be stored.
    Store(String),
}

impl fmt::Display for BadForm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BadForm::Malformed(why) => write!(f, "the form: {why}"),
            BadForm::Store(why) => write!(f, "storing a file of the form: {why}"),
        }
    }
}

impl std::error::Error for BadForm {}

/// Returns whether a `Content-Type` is that of a form. For `multipart/form-data` the boundary is returned.
pub fn is_form(content_type: &str) -> Option<Option<String>> {
    let kind = content_type.split(';').next().unwrap_or_default().trim();
    if kind.eq_ignore_ascii_case("application/x-www-form-urlencoded") {
        return Some(None);
    }
    multer::parse_boundary(content_type).ok().map(Some)
}

/// A part of a name: text, or empty brackets.
enum Key<'n> {
    Name(&'n str),
    Next,
}

/// Cuts `a[b][]` at its brackets. A bracket that is not closed is part of the name.
fn keys(name: &str) -> Option<Vec<Key<'_>>> {
    let Some((first, mut rest)) = name.split_once('[').filter(|(first, _)| !first.is_empty()) else {
        return Some(vec![Key::Name(name)]);
    };
    let mut keys = vec![Key::Name(first)];
    while let Some((inner, behind)) = rest.split_once(']') {
        if keys.len() > DEPTH_MAX {
            return None;
        }
        keys.push(if inner.is_empty() { Key::Next } else { Key::Name(inner) });
        match behind.strip_prefix('[') {
            Some(more) => rest = more,
            // What is behind the last bracket is left out, as PHP does.
            None => return Some(keys),
        }
    }
    Some(if keys.len() == 1 { vec![Key::Name(name)] } else { keys })
}

/// Puts a value where its name says. Of two values with one name the last one counts.
fn put(tree: &mut Value, name: &str, value: Value) -> Result<(), BadForm> {
    let keys = keys(name);
    let keys =
        keys.ok_or_else(|| BadForm::Malformed(format!("a name with more than {DEPTH_MAX} brackets")))?;
    let mut place = tree;
    for key in keys {
        place = match key {
            Key::Name(name) => {
                if let Value::Array(list) = place {
                    // A list that gets a name becomes an array with numbers.
                    let numbered = std::mem::take(list).into_iter().enumerate();
                    *place = Value::Object(numbered.map(|(at, one)| (at.to_string(), one)).collect());
                }
                if !place.is_object() {
                    *place = Value::Object(Map::new());
                }
                let Value::Object(map) = place else { return Ok(()) };
                map.entry(name).or_insert(Value::Null)
            }
            Key::Next => {
                if let Value::Object(map) = place {
                    let numbers = map.keys().filter_map(|key| key.parse::<u64>().ok());
                    let next = numbers.max().map_or(0, |last| last.saturating_add(1));
                    map.entry(next.to_string()).or_insert(Value::Null)
                } else {
                    if !place.is_array() {
                        *place = Value::Array(Vec::new());
                    }
                    let Value::Array(list) = place else { return Ok(()) };
                    list.push(Value::Null);
                    let Some(last) = list.last_mut() else { return Ok(()) };
                    last
                }
            }
        };
    }
    *place = value;
    Ok(())
}

/// Reads `application/x-www-form-urlencoded`.
///
/// # Errors
/// It breaks a bound.
pub fn urlencoded(body: &[u8]) -> Result<Form, BadForm> {
    let mut fields = Value::Object(Map::new());
    let decode = |text: &[u8]| {
        let text: Vec<u8> = text.iter().map(|byte| if *byte == b'+' { b' ' } else { *byte }).collect();
        percent_decode(&text).decode_utf8_lossy().into_owned()
    };
    let pairs = body.split(|byte| *byte == b'&').filter(|pair| !pair.is_empty());
    for (count, pair) in pairs.enumerate() {
        if count >= FIELDS_MAX {
            return Err(BadForm::Malformed(format!("more than {FIELDS_MAX} fields")));
        }
        let cut = pair.iter().position(|byte| *byte == b'=').unwrap_or(pair.len());
        let (name, value) = pair.split_at(cut);
        put(&mut fields, &decode(name), Value::String(decode(value.get(1..).unwrap_or_default())))?;
    }
    Ok(Form { fields, ..Form::default() })
}

/// Reads `multipart/form-data`. Files are stored in `folder`, of which `owner` may read them.
///
/// # Errors
/// The body is no form, breaks a bound, or a file cannot be stored.
pub async fn multipart(
    boundary: &str,
    mut body: RequestBody,
    folder: &Path,
    owner: Option<(u32, u32)>,
) -> Result<Form, BadForm> {
    // The parser wants a stream that may move between threads, which a body of ours may not.
    let (give, take) = bounded::<Result<Vec<u8>, String>>(2);
    let feeding = async move {
        while let Some(piece) = body.next().await {
            let piece = piece.map(|chunk| chunk.to_vec()).map_err(|why| why.to_string());
            if give.send(piece).await.is_err() {
                return;
            }
        }
    };
    let parsing = parse(multer::Multipart::new(take, boundary), folder, owner);
    let ((), form) = futures_util::future::join(feeding, parsing).await;
    form
}

/// Returns a file's name without its folders: programs put it behind a folder of their own, and some browsers
/// send the whole path of another system.
fn base_name(name: &str) -> &str {
    let separators = ['/', '\\'];
    name.trim_end_matches(separators).rsplit(separators).next().unwrap_or_default()
}

async fn parse(
    mut parts: multer::Multipart<'_>,
    folder: &Path,
    owner: Option<(u32, u32)>,
) -> Result<Form, BadForm> {
    let malformed = |why: multer::Error| BadForm::Malformed(why.to_string());
    let mut form = Form { fields: Value::Object(Map::new()), ..Form::default() };
    let (mut count, mut text_bytes) = (0, 0);
    while let Some(mut part) = parts.next_field().await.map_err(malformed)? {
        count += 1;
        if count > FIELDS_MAX {
            return Err(BadForm::Malformed(format!("more than {FIELDS_MAX} fields")));
        }
        let Some(name) = part.name().map(str::to_owned) else { continue };
        let Some(file_name) = part.file_name().map(|name| base_name(name).to_owned()) else {
            let mut text = Vec::new();
            while let Some(piece) = part.chunk().await.map_err(malformed)? {
                text_bytes += piece.len();
                if text_bytes > TEXT_BYTES_MAX {
                    return Err(BadForm::Malformed(format!("fields of more than {TEXT_BYTES_MAX} bytes")));
                }
                text.extend_from_slice(&piece);
            }
            put(&mut form.fields, &name, Value::String(String::from_utf8_lossy(&text).into_owned()))?;
            continue;
        };
        let mime = part.content_type().map(ToString::to_string);
        let mime = mime.unwrap_or_else(|| "application/octet-stream".to_owned());
        let uploads = form.uploads.get_or_insert_with(|| Value::Object(Map::new()));
        if file_name.is_empty() {
            while part.chunk().await.map_err(malformed)?.is_some() {}
            let none = json!({ "name": "", "mime": "", "size": 0, "error": NO_FILE, "tmpName": "" });
            put(uploads, &name, none)?;
            continue;
        }
        let store = |why: &dyn fmt::Display| BadForm::Store(format!("in {}: {why}", folder.display()));
        let stored = NamedTempFile::with_prefix_in("upload-", folder).map_err(|why| store(&why))?;
        if let Some((user, group)) = owner {
            let (user, group) = (rustix::fs::Uid::from_raw(user), rustix::fs::Gid::from_raw(group));
            rustix::fs::fchown(stored.as_file(), Some(user), Some(group)).map_err(|why| store(&why))?;
        }
        let file = File::from_std(stored.as_file().try_clone().map_err(|why| store(&why))?);
        let mut size = 0;
        while let Some(piece) = part.chunk().await.map_err(malformed)? {
            let bytes = piece.len() as u64;
            file.write_all_at(piece.to_vec(), size).await.0.map_err(|why| store(&why))?;
            size += bytes;
        }
        let told = json!({
            "name": file_name,
            "mime": mime,
            "size": size,
            "error": OK,
            "tmpName": stored.path().to_string_lossy(),
        });
        put(uploads, &name, told)?;
        form.files.push(Upload(stored));
    }
    Ok(form)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn tree(body: &str) -> Value {
        urlencoded(body.as_bytes()).unwrap().fields
    }

    #[test]
    fn names_with_brackets_become_nested_arrays() {
        assert_eq!(tree(""), json!({}));
        assert_eq!(tree("a=1&b=x+y%21&a=2&c"), json!({ "a": "2", "b": "x y!", "c": "" }));
        assert_eq!(tree("a[]=1&a[]=2"), json!({ "a": ["1", "2"] }));
        assert_eq!(tree("a[x][y]=1&a[x][z]=2"), json!({ "a": { "x": { "y": "1", "z": "2" } } }));
        assert_eq!(tree("a[]=1&a[k]=2&a[]=3"), json!({ "a": { "0": "1", "k": "2", "1": "3" } }));
        assert_eq!(tree("a[5]=1&a[]=2"), json!({ "a": { "5": "1", "6": "2" } }));
        assert_eq!(tree("a=1&a[b]=2"), json!({ "a": { "b": "2" } }));
    }

    #[test]
    fn brackets_that_are_not_pairs_are_part_of_the_name() {
        assert_eq!(
            tree("a[=1&[b]=2&c]=3&d[e]f=4"),
            json!({ "a[": "1", "[b]": "2", "c]": "3", "d": { "e": "4" } })
        );
    }

    #[test]
    fn a_files_name_has_no_folders() {
        for (sent, name) in [
            ("a.txt", "a.txt"),
            ("../../etc/passwd", "passwd"),
            ("C:\\dir\\x.txt", "x.txt"),
            ("dir/", "dir"),
            ("/", ""),
            ("..", ".."),
        ] {
            assert_eq!(base_name(sent), name, "{sent}");
        }
    }

    #[test]
    fn bounds_of_depth_and_number_hold() {
        let deep = format!("a{}=1", "[x]".repeat(DEPTH_MAX + 1));
        assert!(matches!(urlencoded(deep.as_bytes()), Err(BadForm::Malformed(_))));
        assert!(urlencoded(format!("a{}=1", "[x]".repeat(DEPTH_MAX)).as_bytes()).is_ok());
        let many = "a[]=1&".repeat(FIELDS_MAX + 1);
        assert!(matches!(urlencoded(many.as_bytes()), Err(BadForm::Malformed(_))));
    }

    #[test]
    fn types_of_forms_are_known() {
        assert_eq!(is_form("application/x-www-form-urlencoded; charset=UTF-8"), Some(None));
        assert_eq!(is_form("multipart/form-data; boundary=\"a b\""), Some(Some("a b".to_owned())));
        assert_eq!(is_form("multipart/form-data"), None);
        assert_eq!(is_form("application/json"), None);
    }
}
