//! Files beneath a folder: found, conditions and ranges judged, sent from memory or from the disk.
//!
//! A worker has its own [`Files`]. A small file that was sent stays in memory, with its answer encoded, as long as the
//! file on the disk is the same: that is asked anew for each request (one `statx`), so nobody gets what was replaced.
//! Nothing here waits for a disk on the worker's thread, where the kernel says beforehand that it would
//! (RESOLVE_CACHED, RWF_NOWAIT). Start at [`Files::answer`].

mod coding;
mod condition;
mod listing;
mod open;
mod range;
mod send;
mod sharing;

pub use open::Root;

use crate::answer::{Answer, Asking};
use crate::config::{Cache, Route, Static};
use crate::metrics::Counts;
use crate::{page, path};
use coding::Coding;
use condition::{Validators, Verdict};
use lru::LruCache;
use open::{Found, Identity, Patience, Refused};
use range::{Asked, Part};
use ringroad_engine::spawn_blocking;
use ringroad_http::{EncodeError, Fields, Method, Request, Response, Shared, Status};
use send::{Content, Piece};
use sharing::Sharing;
use std::cell::{Cell, RefCell};
use std::fs::File;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Instant, SystemTime};

/// One worker's way to files, and those it keeps.
pub(crate) struct Files {
    kept: RefCell<Kept>,
    file_bytes_max: u64,
    sharing: RefCell<Sharing>,
    key: RefCell<Vec<u8>>,
    began: Instant,
    counts: Arc<Counts>,
}

/// Files in memory, the one used longest ago first to go.
struct Kept {
    items: LruCache<Vec<u8>, Rc<Item>>,
    bytes: u64,
    bytes_max: u64,
}

/// A file as it is sent: as it is, or a compressed form of it.
struct Item {
    identity: Identity,
    content: Content,
    validators: Validators,
    modified: String,
    content_type: String,
    coding: Option<Coding>,
    /// Which compressed forms lie beside it, and the second that was looked up in.
    siblings: Cell<u8>,
    looked: Cell<u64>,
    /// The answer to an ordinary GET, once there was one.
    ready: RefCell<Option<Shared>>,
}

/// What an item takes besides its bytes, about.
const ITEM_BYTES: u64 = 512;

/// A file that is written to all the time is read so often before it is sent as it comes.
const READS_MAX: usize = 3;

impl Item {
    fn weight(&self, key: &[u8]) -> u64 {
        // Twice: the body, and the answer that holds a small one again.
        2 * self.identity.bytes + key.len() as u64 + ITEM_BYTES
    }
}

impl Files {
    /// A worker's share of the budget is for `workers` of them.
    pub(crate) fn new(cache: &Cache, workers: usize, counts: Arc<Counts>) -> Files {
        let bytes_max = cache.memory_bytes / workers.max(1) as u64;
        Files {
            kept: RefCell::new(Kept { items: LruCache::unbounded(), bytes: 0, bytes_max }),
            file_bytes_max: cache.file_bytes,
            sharing: RefCell::default(),
            key: RefCell::default(),
            began: Instant::now(),
            counts,
        }
    }

    /// Answers a request for what is at `relative` beneath the route's folder.
    pub(crate) async fn answer(
        &self,
        route: &Route,
        settings: &Static,
        request: &Request,
        decoded: &path::Decoded<'_>,
        asking: &Asking<'_>,
    ) -> Result<Answer, EncodeError> {
        let method = request.method();
        match method {
            Method::Get | Method::Head => {}
            Method::Options => return Ok(Answer::empty(allow(Response::empty(Status::NO_CONTENT))?)),
            _ => {
                let refused = page::refusal(Status::METHOD_NOT_ALLOWED, asking, "Files are only read here.");
                return refused.with(allow);
            }
        }
        let relative = decoded.bytes.get(route.path.len()..).unwrap_or_default();
        if decoded.hides_slash || decoded.merged_slashes || !is_servable(relative, settings.hidden) {
            return Ok(page::missing(asking));
        }
        let folder = relative.is_empty() || relative.ends_with(b"/");
        let found = if folder {
            self.index(settings, relative).await
        } else {
            self.fetch(settings, relative, None).await.map(|item| (item, relative.to_vec()))
        };
        match found {
            Ok((item, path)) => self.send(route, settings, request, item, &path, asking).await,
            Err(Refused::Missing) if folder && settings.autoindex => {
                self.list(settings, relative, request, asking).await
            }
            Err(Refused::Missing) if folder && relative.is_empty() => Ok(page::refusal(
                Status::NOT_FOUND,
                asking,
                "This folder has no index file, and listing it is off.",
            )),
            Err(Refused::Missing) if !folder && self.is_folder(settings, relative).await => {
                let place = path::location(&format!("{}/", request.path()), request.query());
                Ok(Answer::empty(Response::redirect(Status::PERMANENT_REDIRECT, &place)?))
            }
            Err(why) => Ok(refusal(why, asking)),
        }
    }

    /// The first index file of a folder that exists.
    async fn index(&self, settings: &Static, folder: &[u8]) -> Result<(Rc<Item>, Vec<u8>), Refused> {
        for name in &settings.index {
            let path = [folder, name.as_bytes()].concat();
            match self.fetch(settings, &path, None).await {
                Ok(item) => return Ok((item, path)),
                Err(Refused::Missing) => {}
                Err(why) => return Err(why),
            }
        }
        Err(Refused::Missing)
    }

    async fn is_folder(&self, settings: &Static, path: &[u8]) -> bool {
        matches!(find(&settings.root, path).await, Ok(Found::Folder(_)))
    }

    async fn list(
        &self,
        settings: &Static,
        relative: &[u8],
        request: &Request,
        asking: &Asking<'_>,
    ) -> Result<Answer, EncodeError> {
        let folder = relative.strip_suffix(b"/").unwrap_or(relative);
        let open = match find(&settings.root, folder).await {
            Ok(Found::Folder(open)) => open,
            Ok(Found::File(..)) => return Ok(page::missing(asking)),
            Err(why) => return Ok(refusal(why, asking)),
        };
        let hidden = settings.hidden;
        let read = spawn_blocking(move || listing::read(&open, hidden)).await;
        let listed = read.map_err(|_| Refused::Busy).and_then(|read| read.map_err(Refused::Failed));
        match listed {
            Ok(listed) => Ok(page::html(Status::OK, listing::page(request.path(), &listed))?),
            Err(why) => Ok(refusal(why, asking)),
        }
    }

    /// A file, or a compressed form of it: from memory if it is there and still the same.
    async fn fetch(
        &self,
        settings: &Static,
        path: &[u8],
        coding: Option<Coding>,
    ) -> Result<Rc<Item>, Refused> {
        let root = &settings.root;
        let stored = coding.map(|coding| [path, coding.suffix().as_bytes()].concat());
        let stored = stored.as_deref().unwrap_or(path);
        let key = {
            let mut key = self.key.borrow_mut();
            key.clear();
            key.extend_from_slice(&(Arc::as_ptr(root).addr() as u64).to_ne_bytes());
            key.push(coding.map_or(0, Coding::bit));
            key.extend_from_slice(path);
            let kept = self.kept.borrow_mut().items.get(key.as_slice()).map(Rc::clone);
            if let Some(item) = kept {
                if root.identity(stored) == Some(item.identity) {
                    self.counts.memory_hits.add(1);
                    self.look_beside(settings, path, &item);
                    return Ok(item);
                }
                self.kept.borrow_mut().forget(&key);
            }
            key.clone()
        };
        self.counts.memory_misses.add(1);
        let item = Rc::new(self.read(root, stored, path, coding).await?);
        item.looked.set(u64::MAX);
        self.look_beside(settings, path, &item);
        if matches!(item.content, Content::Memory(_)) {
            self.kept.borrow_mut().keep(key, &item);
        }
        Ok(item)
    }

    /// Opens a file, and reads it if it is small.
    async fn read(
        &self,
        root: &Arc<Root>,
        stored: &[u8],
        path: &[u8],
        coding: Option<Coding>,
    ) -> Result<Item, Refused> {
        for reads in 1.. {
            let Found::File(file, identity) = find(root, stored).await? else { return Err(Refused::Missing) };
            let file = Arc::new(file);
            let content = if identity.bytes > self.file_bytes_max || reads > READS_MAX {
                Content::File(self.sharing.borrow_mut().one(file, identity))
            } else {
                match read_whole(&file, identity).await? {
                    Some(bytes) => Content::Memory(bytes.into()),
                    None => continue,
                }
            };
            let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
            let coding_name = coding.map_or("", Coding::name);
            let validators =
                Validators::new(identity.modified, identity.bytes, coding_name, SystemTime::now());
            return Ok(Item {
                identity,
                content,
                modified: httpdate::fmt_http_date(validators.modified),
                validators,
                content_type: content_type(&String::from_utf8_lossy(name)),
                coding,
                siblings: Cell::new(0),
                looked: Cell::new(0),
                ready: RefCell::new(None),
            });
        }
        Err(Refused::Busy)
    }

    /// Looks which compressed forms lie beside a file, at most once a second for one in memory. One that is older than
    /// the file is of an earlier state of it.
    fn look_beside(&self, settings: &Static, path: &[u8], item: &Item) {
        if !settings.precompressed || item.coding.is_some() {
            return;
        }
        let now = self.began.elapsed().as_secs();
        if item.looked.replace(now) == now {
            return;
        }
        let beside = |coding: &Coding| {
            let sibling = settings.root.identity(&[path, coding.suffix().as_bytes()].concat());
            sibling.is_some_and(|sibling| sibling.modified >= item.identity.modified)
        };
        let there = Coding::ALL.iter().filter(|coding| beside(coding)).fold(0, |set, one| set | one.bit());
        if item.siblings.replace(there) != there {
            item.ready.take();
        }
    }

    async fn send(
        &self,
        route: &Route,
        settings: &Static,
        request: &Request,
        item: Rc<Item>,
        path: &[u8],
        asking: &Asking<'_>,
    ) -> Result<Answer, EncodeError> {
        let fields = request.headers();
        let siblings = item.siblings.get();
        let mut item = item;
        if siblings != 0 {
            for coding in coding::accepted(fields, siblings) {
                // One that has gone meanwhile is none.
                if let Ok(coded) = self.fetch(settings, path, Some(coding)).await {
                    item = coded;
                    break;
                }
            }
        }
        let varies = siblings != 0;
        if !has_conditions(fields) && asking.id_line.is_none() {
            if let Some(ready) = &*item.ready.borrow() {
                return Ok(Answer::known(Response::shared(ready), item.identity.bytes));
            }
            if let Content::Memory(bytes) = &item.content {
                let whole = described(route, &item, varies, Response::new(Rc::clone(bytes)))?;
                if let Ok(ready) = Shared::new(whole) {
                    let response = Response::shared(&ready);
                    *item.ready.borrow_mut() = Some(ready);
                    return Ok(Answer::known(response, item.identity.bytes));
                }
            }
        }
        match item.validators.judge(request.method(), fields) {
            Verdict::NotModified => {
                let response = described(route, &item, varies, Response::empty(Status::NOT_MODIFIED))?;
                return Ok(Answer::empty(response));
            }
            Verdict::Failed => {
                let why = "The file is not in the state that was asked for.";
                return Ok(page::refusal(Status::PRECONDITION_FAILED, asking, why));
            }
            Verdict::GoOn => {}
        }
        let whole = item.identity.bytes;
        let range = fields.get("range").filter(|_| request.method() == Method::Get);
        let asked = match range {
            Some(range) if item.validators.allows_range(fields) => range::asked(range, whole),
            _ => Asked::Whole,
        };
        match asked {
            Asked::Whole => {
                let (body, sent) = item.content.send(vec![Piece::Part(Part { from: 0, to: whole })], whole);
                Ok(Answer { response: described(route, &item, varies, Response::new(body))?, sent })
            }
            Asked::Parts(parts) if parts.len() == 1 => {
                let Some(&part) = parts.first() else { return Ok(page::missing(asking)) };
                let (body, sent) = item.content.send(vec![Piece::Part(part)], part.bytes());
                let response = described(route, &item, varies, Response::new(body))?;
                let response = response.status(Status::PARTIAL_CONTENT);
                let response = response.header("Content-Range", content_range(part, whole))?;
                Ok(Answer { response, sent })
            }
            Asked::Parts(parts) => several(route, &item, varies, &parts, asking),
            Asked::Nothing => {
                let refused =
                    page::refusal(Status::RANGE_NOT_SATISFIABLE, asking, "The file is not that long.");
                refused.with(|response| response.header("Content-Range", format!("bytes */{whole}")))
            }
        }
    }
}

impl Kept {
    fn forget(&mut self, key: &[u8]) {
        if let Some((key, item)) = self.items.pop_entry(key) {
            self.bytes -= item.weight(&key);
        }
    }

    /// Keeps an item, if it is not too large for the budget; others go for it.
    fn keep(&mut self, key: Vec<u8>, item: &Rc<Item>) {
        let weight = item.weight(&key);
        self.forget(&key);
        if weight > self.bytes_max {
            return;
        }
        while self.bytes + weight > self.bytes_max
            && let Some((key, item)) = self.items.pop_lru()
        {
            self.bytes -= item.weight(&key);
        }
        self.bytes += weight;
        self.items.put(key, Rc::clone(item));
    }
}

/// Finds a file; on another thread if that waits for a disk.
async fn find(root: &Arc<Root>, path: &[u8]) -> Result<Found, Refused> {
    match root.find(path, Patience::None) {
        Err(Refused::WouldWait) => {
            let (root, path) = (Arc::clone(root), path.to_vec());
            spawn_blocking(move || root.find(&path, Patience::Disk)).await.unwrap_or(Err(Refused::Busy))
        }
        found => found,
    }
}

/// All of a file; `None` if it changed meanwhile.
async fn read_whole(file: &Arc<File>, identity: Identity) -> Result<Option<Vec<u8>>, Refused> {
    let bytes = identity.bytes as usize;
    let read = match send::read_now(file, 0, bytes).map_err(Refused::Failed)? {
        Some(read) if read.len() == bytes => read,
        _ => {
            let file = Arc::clone(file);
            let read = spawn_blocking(move || send::read_exactly(&file, 0, bytes)).await;
            read.map_err(|_| Refused::Busy)?.map_err(Refused::Failed)?
        }
    };
    let now = Identity::of_open(&**file).map_err(Refused::Failed)?;
    Ok((read.len() == bytes && now == identity).then_some(read))
}

/// No empty parts, which would be another name for the same, and nothing hidden, but `.well-known` (RFC 8615).
fn is_servable(relative: &[u8], hidden: bool) -> bool {
    let parts = relative.strip_suffix(b"/").unwrap_or(relative);
    relative.is_empty()
        || parts
            .split(|byte| *byte == b'/')
            .all(|part| !part.is_empty() && (hidden || !part.starts_with(b".") || part == b".well-known"))
}

/// Whether a line asks for anything but the whole file.
fn has_conditions(fields: Fields<'_>) -> bool {
    fields.iter().any(|field| match field.name {
        [b'i' | b'I', b'f' | b'F', b'-', ..] => true,
        [b'r' | b'R', ..] => field.name.eq_ignore_ascii_case(b"range"),
        _ => false,
    })
}

/// The response with what is said of a file.
fn described(route: &Route, item: &Item, varies: bool, response: Response) -> Result<Response, EncodeError> {
    let mut response = response
        .header("ETag", &item.validators.etag)?
        .header("Last-Modified", &item.modified)?
        .header("Accept-Ranges", "bytes")?;
    if !route.headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("content-type")) {
        response = response.header("Content-Type", &item.content_type)?;
    }
    if let Some(coding) = item.coding {
        response = response.header("Content-Encoding", coding.name())?;
    }
    if varies {
        response = response.header("Vary", "Accept-Encoding")?;
    }
    for (name, value) in &route.headers {
        response = response.header(name, value)?;
    }
    Ok(response)
}

fn content_range(part: Part, whole: u64) -> String {
    format!("bytes {}-{}/{whole}", part.from, part.to - 1)
}

/// Several parts in one body (RFC 9110 §14.6).
fn several(
    route: &Route,
    item: &Item,
    varies: bool,
    parts: &[Part],
    asking: &Asking<'_>,
) -> Result<Answer, EncodeError> {
    let (whole, boundary) = (item.identity.bytes, asking.id().to_owned());
    let mut pieces = Vec::new();
    for (number, part) in parts.iter().enumerate() {
        let line = if number > 0 { "\r\n" } else { "" };
        let head = format!(
            "{line}--{boundary}\r\nContent-Type: {}\r\nContent-Range: {}\r\n\r\n",
            item.content_type,
            content_range(*part, whole)
        );
        pieces.push(Piece::Text(head.into_bytes()));
        pieces.push(Piece::Part(*part));
    }
    pieces.push(Piece::Text(format!("\r\n--{boundary}--\r\n").into_bytes()));
    let bytes = pieces.iter().map(Piece::bytes).sum();
    let (body, sent) = item.content.send(pieces, bytes);
    let response = Response::new(body).status(Status::PARTIAL_CONTENT);
    let response = response
        .header("Content-Type", format!("multipart/byteranges; boundary={boundary}"))?
        .header("ETag", &item.validators.etag)?
        .header("Last-Modified", &item.modified)?;
    let mut response = match item.coding {
        Some(coding) => response.header("Content-Encoding", coding.name())?,
        None => response,
    };
    if varies {
        response = response.header("Vary", "Accept-Encoding")?;
    }
    let own = |name: &str| name.eq_ignore_ascii_case("content-type");
    for (name, value) in route.headers.iter().filter(|(name, _)| !own(name)) {
        response = response.header(name, value)?;
    }
    Ok(Answer { response, sent })
}

/// What a name says of its file's content.
fn content_type(name: &str) -> String {
    let guess = mime_guess::from_path(name).first_raw().unwrap_or("application/octet-stream");
    // Without one, browsers guess from the bytes (WHATWG MIME Sniffing); everything written today is UTF-8.
    let charset = if guess.starts_with("text/") { "; charset=utf-8" } else { "" };
    format!("{guess}{charset}")
}

fn allow(response: Response) -> Result<Response, EncodeError> {
    response.header("Allow", "GET, HEAD, OPTIONS")
}

fn refusal(why: Refused, asking: &Asking<'_>) -> Answer {
    match why {
        Refused::Missing => page::missing(asking),
        Refused::Forbidden => page::refusal(Status::FORBIDDEN, asking, "The server may not read this file."),
        Refused::Busy | Refused::WouldWait => {
            page::refusal(Status::SERVICE_UNAVAILABLE, asking, "The server is busy. Try again in a moment.")
        }
        Refused::Failed(why) => {
            asking.fault(format!("reading the file: {why}"));
            page::refusal(Status::INTERNAL_SERVER_ERROR, asking, "The file cannot be read.")
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn hidden_names_and_empty_parts_are_not_served() {
        for (path, hidden, served) in [
            ("", false, true),
            ("a/b", false, true),
            ("a/", false, true),
            ("/etc", false, false),
            ("a//b", false, false),
            ("a//", false, false),
            ("/", false, false),
            (".git/config", false, false),
            ("a/.env", false, false),
            (".env", true, true),
            (".well-known/acme-challenge/x", false, true),
            ("a..b", false, true),
        ] {
            assert_eq!(is_servable(path.as_bytes(), hidden), served, "{path:?} {hidden}");
        }
    }

    #[test]
    fn types_are_named_with_their_charset() {
        for (name, expected) in [
            ("a.html", "text/html; charset=utf-8"),
            ("a.CSS", "text/css; charset=utf-8"),
            ("a.js", "text/javascript; charset=utf-8"),
            ("a.svg", "image/svg+xml"),
            ("a.json", "application/json"),
            ("a.wasm", "application/wasm"),
            ("a.webp", "image/webp"),
            ("a.woff2", "font/woff2"),
            ("README", "application/octet-stream"),
        ] {
            assert_eq!(content_type(name), expected, "{name}");
        }
    }

    fn item(bytes: u64) -> Rc<Item> {
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(bytes).unwrap();
        let identity = Identity::of_open(file.as_file()).unwrap();
        Rc::new(Item {
            identity,
            content: Content::Memory(Rc::from([])),
            validators: Validators::new((0, 0), bytes, "", SystemTime::now()),
            modified: String::new(),
            content_type: String::new(),
            coding: None,
            siblings: Cell::new(0),
            looked: Cell::new(0),
            ready: RefCell::new(None),
        })
    }

    #[test]
    fn memory_stays_within_its_budget_and_the_longest_unused_goes_first() {
        let bytes_max = 3 * (2 * 1000 + ITEM_BYTES + 1);
        let mut kept = Kept { items: LruCache::unbounded(), bytes: 0, bytes_max };
        for key in [b"a", b"b", b"c"] {
            kept.keep(key.to_vec(), &item(1000));
        }
        assert_eq!((kept.items.len(), kept.bytes), (3, bytes_max));
        assert!(kept.items.get(&b"a"[..]).is_some());
        kept.keep(b"d".to_vec(), &item(1000));
        let has = |kept: &Kept, key: &[u8]| kept.items.contains(key);
        assert!(has(&kept, b"a") && !has(&kept, b"b") && has(&kept, b"d"));
        // The same again counts once; what is larger than everything is not kept.
        kept.keep(b"d".to_vec(), &item(1000));
        assert_eq!(kept.bytes, bytes_max);
        kept.keep(b"e".to_vec(), &item(bytes_max));
        assert!(!has(&kept, b"e") && kept.items.len() == 3);
        for key in [b"a", b"c", b"d"] {
            kept.forget(key);
        }
        assert_eq!(kept.bytes, 0);
    }
}
