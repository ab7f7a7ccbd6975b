//! Files that an application orders this server to send in the place of its answer's body
//! (`X-Accel-Redirect`, `X-Sendfile`).

use crate::answer::Answer;
use crate::config::Route;
use crate::files::{Files, Root};
use crate::page;
use ringroad_gate::flow::Flow;
use ringroad_gate::media::MediaTypes;
use ringroad_gate::path::Spellings;
use ringroad_http::{EncodeError, Status};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

/// Folders with files that an answer may name, by the prefix of `X-Accel-Redirect`.
pub(crate) type Folders = [(String, Arc<Root>)];

/// Lines of an application's answer.
type Lines = [(Vec<u8>, Vec<u8>)];

/// Lines that are the file's, or that do not belong to an answer with a file.
const OF_THE_FILE: &[&str] = &["etag", "last-modified", "status"];

fn is_one_of(name: &[u8], names: &[&str]) -> bool {
    names.iter().any(|known| name.eq_ignore_ascii_case(known.as_bytes()))
}

/// Returns the value of the order among an answer's lines, and which of both it is.
fn order(lines: &Lines) -> Option<(&[u8], bool)> {
    let value = |name: &str| {
        let line = lines.iter().find(|(own, _)| own.eq_ignore_ascii_case(name.as_bytes()))?;
        Some(&*line.1)
    };
    let accel = value("x-accel-redirect").map(|place| (place, true));
    accel.or_else(|| Some((value("x-sendfile")?, false)))
}

/// Returns the file that the lines of an answer order this server to send, as an answer with the other ones,
/// but for `left_out`; `None`: they order nothing.
pub(crate) async fn file_instead(
    files: &Files,
    route: &Route,
    types: &MediaTypes,
    folders: &Folders,
    flow: &Flow,
    lines: &Lines,
    left_out: &[&str],
) -> Option<Result<Answer, EncodeError>> {
    let (place, is_path) = order(lines)?;
    let found = if is_path { below_prefix(folders, place) } else { beneath_folder(folders, place) };
    let shown = String::from_utf8_lossy(place);
    let Some((root, relative)) = found else {
        flow.context.fault(format!("the answer names the file {shown:?}, which no `sendfile` allows"));
        let refused = page::refusal(Status::NOT_FOUND, &flow.context, "There is nothing at this address.");
        return Some(Ok(refused));
    };
    Some(match files.send_file(route, root, types, &relative, flow).await {
        // Its type and lifetime are those of the file, which a refusal has not.
        Ok(Some(answer)) if answer.response.status_code().code() >= 400 => Ok(answer),
        Ok(Some(answer)) => answer.with(|mut response| {
            for (name, value) in lines {
                if is_one_of(name, left_out) || is_one_of(name, OF_THE_FILE) {
                    continue;
                }
                if name.eq_ignore_ascii_case(b"content-type") {
                    response.set_header("Content-Type", value)?;
                } else {
                    response.add_header(name, value)?;
                }
            }
            Ok(response)
        }),
        Ok(None) => {
            flow.context.fault(format!("the answer names the file {shown:?}, which is not there"));
            Ok(page::missing(&flow.context))
        }
        Err(why) => Err(why),
    })
}

/// Returns the folder and file of `X-Accel-Redirect`: a path of this server, below one of the prefixes.
fn below_prefix<'f>(folders: &'f Folders, place: &[u8]) -> Option<(&'f Arc<Root>, Vec<u8>)> {
    let place = str::from_utf8(place).ok()?;
    let path = place.split(['?', '#']).next()?;
    let spelled = Spellings::of(path).ok().filter(|spelled| !spelled.hides_slash)?;
    let longest = folders.iter().filter(|(prefix, _)| spelled.decoded.starts_with(prefix.as_bytes()));
    let (prefix, root) = longest.max_by_key(|(prefix, _)| prefix.len())?;
    Some((root, spelled.decoded.get(prefix.len()..)?.to_vec()))
}

/// Returns the folder and file of `X-Sendfile`: a path of the file system, beneath one of the folders.
fn beneath_folder<'f>(folders: &'f Folders, place: &[u8]) -> Option<(&'f Arc<Root>, Vec<u8>)> {
    let place = Path::new(std::ffi::OsStr::from_bytes(place));
    let dots = |part: &std::ffi::OsStr| matches!(part.as_bytes(), b"." | b"..");
    if place.iter().any(dots) {
        return None;
    }
    folders.iter().find_map(|(_, root)| {
        let below = |folder: &Path| Some(place.strip_prefix(folder).ok()?.as_os_str().as_bytes().to_vec());
        below(root.path()).or_else(|| below(&root.path().canonicalize().ok()?)).map(|path| (root, path))
    })
}
