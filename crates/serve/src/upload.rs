//! Uploads: files that clients put into a folder (`kind = "upload"`).
//!
//! A file is written without a name, or under a name that no route serves, and gets its name when it is
//! complete, so readers of the folder see only complete files. An existing file stays, unless `overwrite`
//! allows replacing it. Uploading the same bytes again is not an error, so a client may repeat an upload that
//! got no answer. The route's body limit bounds the size of a file, and `keep_free` that of all uploads.
//! Start at [`answer`].

use crate::answer::Answer;
use crate::config::{Route, Upload};
use crate::files::{self, Refused, Uploads};
use crate::page;
use percent_encoding::{AsciiSet, utf8_percent_encode};
use ringroad_engine::fs::File;
use ringroad_engine::spawn_blocking;
use ringroad_gate::flow::Flow;
use ringroad_gate::path::{self, Spellings};
use ringroad_http::{EncodeError, Method, Response, Status};
use rustix::io::Errno;
use std::io;
use std::sync::Arc;

/// Bytes that are collected before they are written.
const PIECE_BYTES: usize = 256 << 10;
/// Characters of a file name that need no escape in a URL (RFC 3986 §2.3).
const NAME: &AsciiSet =
    &percent_encoding::NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');
/// Maximum bytes of a file name.
const NAME_BYTES_MAX: usize = 200;

/// Result of storing a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kept {
    Created,
    Replaced,
    /// The same bytes existed.
    Same,
    /// Another file has the name, and may not be replaced.
    Taken,
}

/// Answers a request with the file that it carries.
pub(crate) async fn answer(route: &Route, settings: &Upload, flow: &mut Flow) -> Result<Answer, EncodeError> {
    if !matches!(flow.request.method(), Method::Put | Method::Post) {
        let what = "Files are only put here.";
        return page::refusal(Status::METHOD_NOT_ALLOWED, &flow.context, what)
            .with(|response| response.header("Allow", "POST, PUT"));
    }
    let name = match name(flow) {
        Ok(name) => name,
        Err(what) => return Ok(page::refusal(Status::BAD_REQUEST, &flow.context, what)),
    };
    let size = flow.request.body().bytes_left();
    let (root, keep_free) = (Arc::clone(&settings.root), settings.keep_free);
    let begun = spawn_blocking(move || root.begin_upload(keep_free.saturating_add(size.unwrap_or(0)))).await;
    let upload = match begun {
        Ok(Ok(Some(upload))) => upload,
        Ok(Ok(None)) => {
            let what = "There is no room for this file.";
            return Ok(page::refusal(Status::INSUFFICIENT_STORAGE, &flow.context, what));
        }
        Ok(Err(why)) => return Ok(failed(flow, &why)),
        Err(_) => {
            let what = "The server is busy.";
            return Ok(page::refusal(Status::SERVICE_UNAVAILABLE, &flow.context, what));
        }
    };
    if let Err(refused) = receive(flow, &upload).await {
        return Ok(refused);
    }
    let (overwrite, own) = (settings.overwrite, name.clone());
    // The existing file is compared.
    files::until_unleased(&settings.root, name.as_bytes()).await;
    let kept = spawn_blocking(move || upload.finish(&own, overwrite)).await;
    let status = match kept {
        Ok(Ok(Kept::Created)) => Status::new(201).unwrap_or(Status::OK),
        Ok(Ok(Kept::Replaced | Kept::Same)) => Status::OK,
        Ok(Ok(Kept::Taken)) => {
            let what = "Another file has this name.";
            let conflict = Status::new(409).unwrap_or(Status::BAD_REQUEST);
            return Ok(page::refusal(conflict, &flow.context, what));
        }
        Ok(Err(why)) => return Ok(failed(flow, &why)),
        Err(_) => {
            let what = "The server is busy.";
            return Ok(page::refusal(Status::SERVICE_UNAVAILABLE, &flow.context, what));
        }
    };
    let (path, _) = flow.place();
    let above = path.rfind('/').and_then(|at| path.get(..=at)).unwrap_or("/");
    let place = path::location(&format!("{above}{}", utf8_percent_encode(&name, NAME)), None);
    let mut response = Response::redirect(status, &place)?;
    for (name, value) in route.steps.lines() {
        response = response.header(name, value)?;
    }
    Ok(Answer::plain(response))
}

/// Returns the file name in the request; a generated one if the request names only the folder.
fn name(flow: &Flow) -> Result<String, &'static str> {
    let refused = "This is not a name for a file here.";
    let spelled = Spellings::of_request(&flow.request).map_err(|_| refused)?;
    if spelled.hides_slash {
        return Err(refused);
    }
    let relative = spelled.decoded.get(flow.context.below()..).unwrap_or_default();
    let name = std::str::from_utf8(relative).map_err(|_| refused)?;
    if name.is_empty() {
        if flow.request.method() != Method::Post {
            return Err("PUT needs the name of a file behind the folder's.");
        }
        let id: String = flow.context.id().chars().filter(char::is_ascii_alphanumeric).collect();
        let kind = flow.request.header("content-type").unwrap_or_default();
        let end = if kind.starts_with("application/json") { "json" } else { "bin" };
        return Ok(format!("{id}.{end}"));
    }
    let fits = name.len() <= NAME_BYTES_MAX
        && !name.starts_with('.')
        && !name.contains(|letter: char| letter == '/' || letter == '\\' || letter.is_control());
    if fits { Ok(name.to_owned()) } else { Err(refused) }
}

/// Writes the body as it comes.
async fn receive(flow: &mut Flow, upload: &Uploads) -> Result<(), Answer> {
    let mut body = std::mem::take(flow.request.body());
    let file = match upload.file() {
        Ok(file) => File::from_std(file),
        Err(why) => return Err(failed(flow, &why)),
    };
    let (mut piece, mut at) = (Vec::new(), 0);
    loop {
        let next = body.next().await;
        match &next {
            Some(Ok(chunk)) => piece.extend_from_slice(chunk),
            Some(Err(why)) => {
                flow.context.client_fault(format!("receiving the file: {why}"));
                return Err(page::refusal(why.status(), &flow.context, "The file did not come whole."));
            }
            None => {}
        }
        if piece.len() >= PIECE_BYTES || (next.is_none() && !piece.is_empty()) {
            let bytes = piece.len() as u64;
            let (written, mut room) = file.write_all_at(piece, at).await;
            if let Err(why) = written {
                return Err(failed(flow, &io::Error::from(why)));
            }
            at += bytes;
            room.clear();
            piece = room;
        }
        if next.is_none() {
            return Ok(());
        }
    }
}

/// Returns the answer if the file cannot be stored; the reason is logged.
fn failed(flow: &Flow, why: &io::Error) -> Answer {
    flow.context.fault(format!("keeping the file: {why}"));
    let (status, what) = match why.raw_os_error().map(Errno::from_raw_os_error) {
        Some(Errno::NOSPC | Errno::DQUOT) => {
            (Status::INSUFFICIENT_STORAGE, "There is no room for this file.")
        }
        // The file system is read-only.
        Some(Errno::ROFS) => (Status::FORBIDDEN, "The server may not keep files here."),
        Some(errno) => match Refused::from(errno) {
            Refused::Forbidden => (Status::FORBIDDEN, "The server may not keep files here."),
            Refused::Busy => (Status::SERVICE_UNAVAILABLE, "The server is busy. Try again in a moment."),
            _ => (Status::INTERNAL_SERVER_ERROR, "The file could not be kept."),
        },
        None => (Status::INTERNAL_SERVER_ERROR, "The file could not be kept."),
    };
    page::refusal(status, &flow.context, what)
}
