//! Files beneath a folder: found, conditions and ranges judged, sent from memory or from the disk.
//!
//! A worker has its own [`Files`]. A small file that was sent stays in memory, with its answer encoded, as
//! long as the file on the disk is the same: each request looks (one `statx`), so no client gets what was
//! replaced. Nothing here waits for a disk on the worker's thread where the kernel reports beforehand that it
//! would (RESOLVE_CACHED, RWF_NOWAIT), nor for another machine ([`identity`]). Start at [`Files::answer`].

mod beside;
mod condition;
mod incoming;
mod listing;
mod open;
mod range;
mod send;
mod sharing;

pub(crate) use incoming::Uploads;
pub use open::Root;
pub(crate) use open::{Refused, second};

use crate::answer::{Answer, Context};
use crate::config::{Cache, Route, Static, Try};
use crate::endpoint;
use crate::metrics::Counts;
use crate::page;
use condition::{Validators, Verdict};
use listing::Order;
use lru::LruCache;
use open::{Found, Identity, OpenFolder, Patience};
use range::{Asked, Part};
use ringroad_engine::time::sleep;
use ringroad_engine::{spawn, spawn_blocking};
use ringroad_gate::coding::{self, Coding};
use ringroad_gate::flow::Flow;
use ringroad_gate::media::MediaTypes;
use ringroad_gate::path::Spellings;
use ringroad_http::{ContentType, EncodeError, Fields, Method, Request, Response, Shared, Status};
use send::{Content, Piece};
use sharing::Sharing;
use std::borrow::Cow;
use std::cell::{Cell, RefCell};
use std::fs::File;
use std::hash::{BuildHasher, RandomState};
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant, SystemTime};

/// One worker's access to files, with its cache.
pub(crate) struct Files {
    kept: RefCell<Kept>,
    file_bytes_max: u64,
    sharing: RefCell<Sharing>,
    key: RefCell<Vec<u8>>,
    counts: Arc<Counts>,
}

/// Files in memory, the one used longest ago first to go.
struct Kept {
    items: LruCache<Vec<u8>, Rc<Item>>,
    bytes: u64,
    bytes_max: u64,
}

/// A cached file: its own bytes or a compressed form.
struct Item {
    identity: Identity,
    content: Content,
    validators: Validators,
    modified: Option<String>,
    content_type: String,
    coding: Option<Coding>,
    /// Which compressed forms of it lie beside it, in which states, and the second that was looked up in.
    siblings: Cell<u8>,
    forms: Cell<Siblings>,
    looked: Cell<u64>,
    /// The answer to an ordinary GET, once there was one.
    ready: RefCell<Option<Shared>>,
}

/// The states of compressed forms, by coding.
type Siblings = [Option<Identity>; Coding::ALL.len()];

/// Approximate memory of an item besides its bytes.
const ITEM_BYTES: u64 = 512;

/// Maximum number of reads of a file that changes while it is read; then it is sent without the cache.
const READS_MAX: usize = 3;

impl Item {
    fn weight(&self, key: &[u8]) -> u64 {
        // Twice: the body, and the answer that holds a small one again.
        2 * self.identity.bytes + key.len() as u64 + ITEM_BYTES
    }
}

/// What `try_files` leads to.
enum Other {
    File(Rc<Item>, Vec<u8>),
    Status(Status),
    Nothing,
}

impl Files {
    /// Makes a worker's files; its share of the budget is that of one among `workers`.
    pub(crate) fn new(cache: &Cache, workers: usize, counts: Arc<Counts>) -> Files {
        let bytes_max = cache.memory_bytes / workers.max(1) as u64;
        Files {
            kept: RefCell::new(Kept { items: LruCache::unbounded(), bytes: 0, bytes_max }),
            file_bytes_max: cache.file_bytes,
            sharing: RefCell::default(),
            key: RefCell::default(),
            counts,
        }
    }

    /// Answers a request for what is at `relative` beneath the route's folder.
    pub(crate) async fn answer(
        &self,
        route: &Route,
        settings: &Static,
        flow: &Flow,
    ) -> Result<Answer, EncodeError> {
        let Flow { request, context } = flow;
        let second = open::second(context.began);
        look(&settings.root, second);
        let method = request.method();
        match method {
            Method::Get | Method::Head => {}
            Method::Options => return Ok(Answer::plain(allow(Response::empty(Status::NO_CONTENT))?)),
            _ => {
                let refused = page::refusal(Status::METHOD_NOT_ALLOWED, context, "Files are only read here.");
                return refused.with(allow);
            }
        }
        let spelled = match endpoint::spelled(flow) {
            Ok(spelled) => spelled,
            Err(refused) => return Ok(*refused),
        };
        let relative = spelled.decoded.get(context.below()..).unwrap_or_default();
        // In a plain path only what is left of it could begin so, and does not: a route ends with a slash, or
        // takes all of the path.
        let is_plain = spelled.is_plain && !matches!(relative.first(), Some(b'.' | b'/'));
        if !is_plain && (spelled.hides_slash || !is_servable(relative, settings.hidden)) {
            return Ok(page::missing(context));
        }
        let folder = relative.is_empty() || relative.ends_with(b"/");
        let found = if folder {
            self.index(settings, relative, second).await
        } else {
            self.fetch(settings, relative, None, second).await.map(|item| (item, Cow::Borrowed(relative)))
        };
        let found = match found {
            Err(Refused::Missing) if !settings.try_files.is_empty() => {
                match Box::pin(self.try_others(settings, flow, second)).await {
                    Ok(Other::File(item, path)) => Ok((item, Cow::Owned(path))),
                    Ok(Other::Nothing) => Err(Refused::Missing),
                    Ok(Other::Status(status)) => {
                        return Ok(page::refusal(status, context, "There is nothing at this address."));
                    }
                    Err(why) => Err(why),
                }
            }
            found => found,
        };
        match found {
            Ok((item, path)) => self.send(route, settings, request, item, &path, context).await,
            Err(Refused::Missing) if folder && settings.autoindex => {
                self.list(settings, relative, flow).await
            }
            Err(Refused::Missing) if folder && relative.is_empty() => Ok(page::refusal(
                Status::NOT_FOUND,
                context,
                "This folder has no index file, and listing it is off.",
            )),
            Err(Refused::Missing) if !folder => match look_up(&settings.root, relative).await {
                Ok(Some(Thing::Folder)) => {
                    Ok(Answer::plain(Response::redirect(page::moved(method), &flow.place_with_slash())?))
                }
                Ok(_) => Ok(page::missing(context)),
                Err(why) => Ok(refusal(why, context)),
            },
            Err(why) => Ok(refusal(why, context)),
        }
    }

    /// Sends one file beneath `root`, or answers why it cannot be read now; `None` if it is not there.
    pub(crate) async fn send_file(
        &self,
        route: &Route,
        root: &Arc<Root>,
        types: &MediaTypes,
        path: &[u8],
        flow: &Flow,
    ) -> Result<Option<Answer>, EncodeError> {
        let second = open::second(flow.context.began);
        look(root, second);
        let settings = Static { precompressed: false, types: types.clone(), ..Static::of(Arc::clone(root)) };
        match self.fetch(&settings, path, None, second).await {
            Ok(item) => self.send(route, &settings, &flow.request, item, path, &flow.context).await.map(Some),
            Err(Refused::Missing | Refused::Outside) => Ok(None),
            Err(Refused::Forbidden) => {
                flow.context.fault("the file that the answer names may not be read".to_owned());
                Ok(Some(refusal(Refused::Forbidden, &flow.context)))
            }
            Err(why) => Ok(Some(refusal(why, &flow.context))),
        }
    }

    /// Returns the first of `try_files` that is there; or the status that ends the list.
    async fn try_others(&self, settings: &Static, flow: &Flow, second: u64) -> Result<Other, Refused> {
        for one in &settings.try_files {
            let template = match one {
                Try::Status(status) => return Ok(Other::Status(*status)),
                Try::Path(template) => template,
            };
            let Ok(path) = String::from_utf8(template.render(flow)) else { continue };
            let path = format!("/{}", path.trim_start_matches('/'));
            // What the client's path puts in is judged as the path of a request is.
            let Ok(spelled) = Spellings::of(&path) else { continue };
            let relative = spelled.decoded.get(1..).unwrap_or_default();
            if spelled.hides_slash || !is_servable(relative, settings.hidden) {
                continue;
            }
            let found = if relative.is_empty() || relative.ends_with(b"/") {
                self.index(settings, relative, second).await
            } else {
                self.fetch(settings, relative, None, second).await.map(|item| (item, Cow::Borrowed(relative)))
            };
            match found {
                Ok((item, path)) => return Ok(Other::File(item, path.into_owned())),
                Err(Refused::Missing) => {}
                // It is there, or that cannot be told: the next one would be another page for a moment.
                Err(why) => return Err(why),
            }
        }
        Ok(Other::Nothing)
    }

    /// Returns the first index file of a folder that exists.
    async fn index<'p>(
        &self,
        settings: &Static,
        folder: &[u8],
        second: u64,
    ) -> Result<(Rc<Item>, Cow<'p, [u8]>), Refused> {
        for name in &settings.index {
            let path = [folder, name.as_bytes()].concat();
            match self.fetch(settings, &path, None, second).await {
                Ok(item) => return Ok((item, Cow::Owned(path))),
                Err(Refused::Missing) => {}
                Err(why) => return Err(why),
            }
        }
        Err(Refused::Missing)
    }

    async fn list(&self, settings: &Static, relative: &[u8], flow: &Flow) -> Result<Answer, EncodeError> {
        let Flow { request, context } = flow;
        let folder = relative.strip_suffix(b"/").unwrap_or(relative);
        let open = match find(&settings.root, folder).await {
            Ok(Found::Folder(open)) => open,
            Ok(Found::File(..)) => return Ok(page::missing(context)),
            Err(why) => return Ok(refusal(why, context)),
        };
        let (hidden, root, relative) = (settings.hidden, Arc::clone(&settings.root), folder.to_vec());
        let asked = |name: &str| request.query_value(name);
        let order = Order::of(asked("sort").as_deref(), asked("order").as_deref());
        let as_json = match asked("format").as_deref() {
            Some(format) => format == "json",
            None => {
                !context.html
                    && request.header("accept").is_some_and(|types| types.contains("application/json"))
            }
        };
        let path = flow.place().0.to_owned();
        let most = settings.autoindex_names;
        let read = spawn_blocking(move || {
            let listed = listing::read(&open, &root, &relative, hidden, order, most)?;
            Ok(if as_json { listing::json(&path, &listed) } else { listing::page(&path, &listed, order) })
        });
        let listed = read.await.map_err(|_| Refused::Busy).and_then(|read| read);
        let text = match listed {
            Ok(text) => text,
            Err(why) => return Ok(refusal(why, context)),
        };
        let answer = if as_json {
            Answer::plain(Response::new(text).content_type(ContentType::Json))
        } else {
            page::html(Status::OK, text)?
        };
        let Answer { mut response, watch } = answer;
        response.add_header("Vary", "Accept")?;
        Ok(Answer { response, watch })
    }

    /// Returns a file, or a compressed form of it: from memory if it is there and still the same. `second` is
    /// that of the request.
    async fn fetch(
        &self,
        settings: &Static,
        path: &[u8],
        coding: Option<Coding>,
        second: u64,
    ) -> Result<Rc<Item>, Refused> {
        let root = &settings.root;
        let stored = coding.map(|coding| [path, coding.suffix().as_bytes()].concat());
        let stored = stored.as_deref().unwrap_or(path);
        let folder = root.folder();
        let kept = {
            let mut key = self.key.borrow_mut();
            put_key(&mut key, &folder, coding, path);
            self.kept.borrow_mut().items.get(key.as_slice()).map(Rc::clone)
        };
        if let Some(item) = &kept {
            let now = if folder.is_remote() { identity(root, stored).await } else { folder.identity(stored) };
            if now == Some(item.identity) {
                self.counts.memory_hits.add(1);
                if self.is_to_be_looked_beside(settings, item, second) {
                    Box::pin(self.look_beside(settings, path, item)).await;
                }
                return Ok(Rc::clone(item));
            }
        }
        let mut key = Vec::new();
        put_key(&mut key, &folder, coding, path);
        if kept.is_some() {
            self.kept.borrow_mut().forget(&key);
        }
        self.counts.memory_misses.add(1);
        let item = Rc::new(self.read(settings, stored, path, coding).await?);
        item.looked.set(u64::MAX);
        if self.is_to_be_looked_beside(settings, &item, second) {
            Box::pin(self.look_beside(settings, path, &item)).await;
        }
        // A file that was just changed may change again with the same times and size.
        if matches!(item.content, Content::Memory(_)) && !item.validators.recent {
            self.kept.borrow_mut().keep(key, &item);
        }
        Ok(item)
    }

    /// Opens a file, and reads it if it is small.
    async fn read(
        &self,
        settings: &Static,
        stored: &[u8],
        path: &[u8],
        coding: Option<Coding>,
    ) -> Result<Item, Refused> {
        for reads in 1.. {
            let Found::File(file, identity) = find(&settings.root, stored).await? else {
                return Err(Refused::Missing);
            };
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
            let whole = match &content {
                Content::Memory(bytes) => Some(&**bytes),
                Content::File(_) => None,
            };
            let validators = Validators::new(&identity, whole, coding_name, SystemTime::now(), next_once);
            return Ok(Item {
                identity,
                content,
                modified: validators.modified.map(httpdate::fmt_http_date),
                validators,
                content_type: settings.types.of(&String::from_utf8_lossy(name)),
                coding,
                siblings: Cell::new(0),
                forms: Cell::default(),
                looked: Cell::new(0),
                ready: RefCell::new(None),
            });
        }
        Err(Refused::Busy)
    }

    /// Returns whether it is time to look which compressed forms of a file lie beside it: at most once a
    /// second for one in memory.
    fn is_to_be_looked_beside(&self, settings: &Static, item: &Item, second: u64) -> bool {
        settings.precompressed && item.coding.is_none() && item.looked.replace(second) != second
    }

    /// Looks which compressed forms of a file lie beside it.
    async fn look_beside(&self, settings: &Static, path: &[u8], item: &Item) {
        let mut there = Siblings::default();
        for coding in Coding::ALL {
            if let Some(place) = there.get_mut(coding as usize) {
                *place = beside::usable(&settings.root, path, coding, item.identity).await;
            }
        }
        let codings = Coding::ALL.into_iter().filter(|coding| state_of(&there, *coding).is_some());
        let bits = codings.fold(0, |all, coding| all | coding.bit());
        item.forms.set(there);
        if item.siblings.replace(bits) != bits {
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
        context: &Context,
    ) -> Result<Answer, EncodeError> {
        let fields = request.headers();
        let siblings = item.siblings.get();
        let mut item = item;
        if siblings != 0 {
            let forms = item.forms.get();
            for coding in coding::accepted(fields, siblings) {
                // A file that was removed meanwhile is not offered.
                let second = open::second(context.began);
                let Ok(coded) = self.fetch(settings, path, Some(coding), second).await else { continue };
                if state_of(&forms, coding) == Some(coded.identity) {
                    item = coded;
                    break;
                }
                // It is in another state by now, which has to be looked at.
                item.looked.set(u64::MAX);
            }
        }
        let varies = siblings != 0;
        if !has_conditions(fields) {
            if let Some(ready) = &*item.ready.borrow() {
                return Ok(Answer::plain(Response::shared(ready)));
            }
            if let Content::Memory(bytes) = &item.content {
                let whole = described(route, &item, varies, Response::new(Rc::clone(bytes)))?;
                if let Ok(ready) = Shared::new(whole) {
                    let response = Response::shared(&ready);
                    *item.ready.borrow_mut() = Some(ready);
                    return Ok(Answer::plain(response));
                }
            }
        }
        match item.validators.judge(request.method(), fields) {
            Verdict::NotModified => {
                let response = unchanged(route, &item, varies)?;
                return Ok(Answer::plain(response));
            }
            Verdict::Failed => {
                let why = "The file is not in the state that was asked for.";
                return Ok(page::refusal(Status::PRECONDITION_FAILED, context, why));
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
                let (body, watch) = item.content.send(vec![Piece::Part(Part { from: 0, to: whole })], whole);
                Ok(Answer { response: described(route, &item, varies, Response::new(body))?, watch })
            }
            Asked::Parts(parts) if parts.len() == 1 => {
                let Some(&part) = parts.first() else { return Ok(page::missing(context)) };
                let (body, watch) = item.content.send(vec![Piece::Part(part)], part.bytes());
                let response = described(route, &item, varies, Response::new(body))?;
                let response = response.status(Status::PARTIAL_CONTENT);
                let response = response.header("Content-Range", content_range(part, whole))?;
                Ok(Answer { response, watch })
            }
            Asked::Parts(parts) => several(route, &item, varies, &parts, context),
            Asked::Nothing => {
                let refused =
                    page::refusal(Status::RANGE_NOT_SATISFIABLE, context, "The file is not that long.");
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

/// Looks where the path of a folder leads now, once in each [`second`] of requests and on another thread.
pub(crate) fn look(root: &Arc<Root>, second: u64) {
    if root.is_to_be_looked_at(second) {
        let root = Arc::clone(root);
        let look = async move { spawn_blocking(move || root.reopen()).await };
        spawn(async move { drop(look.await) }).detach();
    }
}

fn state_of(siblings: &Siblings, coding: Coding) -> Option<Identity> {
    siblings.get(coding as usize).copied().flatten()
}

/// What a path beneath a folder leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Thing {
    /// A regular file that may be read.
    File,
    Folder,
}

/// Returns what there is at a path beneath a folder. `None`: nothing.
///
/// # Errors
/// It cannot be told whether there is something: without descriptors or with a silent server of files
/// something else would be answered, as the page of an application, and be kept. Or it is there and may not
/// be read.
pub(crate) async fn look_up(root: &Arc<Root>, path: &[u8]) -> Result<Option<Thing>, Refused> {
    match find(root, path).await {
        Ok(Found::File(..)) => Ok(Some(Thing::File)),
        Ok(Found::Folder(_)) => Ok(Some(Thing::Folder)),
        Err(Refused::Missing | Refused::Outside) => Ok(None),
        Err(why) => Err(why),
    }
}

/// Returns whether a path beneath a folder is a regular file that may be read.
///
/// # Errors
/// As [`look_up`].
pub(crate) async fn is_file(root: &Arc<Root>, path: &[u8]) -> Result<bool, Refused> {
    Ok(look_up(root, path).await? == Some(Thing::File))
}

/// Pause between attempts to open a file on which another program holds a lease: first as long as a
/// responsive holder takes.
const LEASE_PAUSES: [Duration; 2] = [Duration::from_millis(5), Duration::from_millis(100)];

/// Finds a file; on another thread if that waits for a disk. A lease of another program (Samba's oplocks, NFS
/// delegations) is waited for, until the kernel takes it; a client that leaves meanwhile ends the wait.
async fn find(root: &Arc<Root>, path: &[u8]) -> Result<Found, Refused> {
    match find_now(root, path).await {
        Err(Refused::Leased) => find_leased(root, path).await,
        found => found,
    }
}

#[cold]
async fn find_leased(root: &Arc<Root>, path: &[u8]) -> Result<Found, Refused> {
    let [mut pause, longest] = LEASE_PAUSES;
    let began = Instant::now();
    // The kernel looks at its leases when it is asked, and each second at the latest.
    let most = open::lease_break_time() + Duration::from_secs(5);
    loop {
        sleep(pause).await;
        match find_now(root, path).await {
            Err(Refused::Leased) if began.elapsed() < most => pause = (2 * pause).min(longest),
            found => return found,
        }
    }
}

/// Waits until no other program's lease is on what is at a path, if there is anything.
pub(crate) async fn until_unleased(root: &Arc<Root>, path: &[u8]) {
    drop(find(root, path).await);
}

async fn find_now(root: &Arc<Root>, path: &[u8]) -> Result<Found, Refused> {
    match root.find(path, Patience::None) {
        Err(Refused::WouldWait) => {
            let (root, path) = (Arc::clone(root), path.to_vec());
            spawn_blocking(move || root.find(&path, Patience::Disk)).await.unwrap_or(Err(Refused::Busy))
        }
        found => found,
    }
}

/// Writes the key of a file in memory.
fn put_key(key: &mut Vec<u8>, folder: &OpenFolder, coding: Option<Coding>, path: &[u8]) {
    key.clear();
    key.extend_from_slice(&folder.id().to_ne_bytes());
    key.push(coding.map_or(0, Coding::bit));
    key.extend_from_slice(path);
}

/// Returns what a path's file is now ([`Root::identity`]). Where the folder is remote, another thread asks: a
/// server of files that is silent would otherwise stop this worker with all its connections.
async fn identity(root: &Arc<Root>, path: &[u8]) -> Option<Identity> {
    if !root.is_remote() {
        return root.identity(path);
    }
    let (root, path) = (Arc::clone(root), path.to_vec());
    spawn_blocking(move || root.identity(&path)).await.ok().flatten()
}

/// Returns a number that differs each time, also between processes.
fn next_once() -> u64 {
    static KEYS: OnceLock<RandomState> = OnceLock::new();
    static NEXT: AtomicU64 = AtomicU64::new(0);
    KEYS.get_or_init(RandomState::new).hash_one(NEXT.fetch_add(1, Ordering::Relaxed))
}

/// All of a file; `None` if it changed meanwhile.
async fn read_whole(file: &Arc<File>, identity: Identity) -> Result<Option<Vec<u8>>, Refused> {
    let bytes = identity.bytes as usize;
    let read = match send::read_now(file, 0, bytes)? {
        Some(read) if read.len() == bytes => read,
        _ => {
            let file = Arc::clone(file);
            let read = spawn_blocking(move || send::read_exactly(&file, 0, bytes)).await;
            read.map_err(|_| Refused::Busy)??
        }
    };
    let now = Identity::of_open(&**file)?;
    Ok((read.len() == bytes && now == identity).then_some(read))
}

/// No empty parts, which would be another name for the same, and nothing hidden, but `.well-known` (RFC
/// 8615).
pub(crate) fn is_servable(relative: &[u8], hidden: bool) -> bool {
    let parts = relative.strip_suffix(b"/").unwrap_or(relative);
    relative.is_empty()
        || parts
            .split(|byte| *byte == b'/')
            .all(|part| !part.is_empty() && (hidden || !part.starts_with(b".") || part == b".well-known"))
}

/// Returns whether a line asks for anything but the whole file.
fn has_conditions(fields: Fields<'_>) -> bool {
    fields.iter().any(|field| match field.name {
        [b'i' | b'I', b'f' | b'F', b'-', ..] => true,
        [b'r' | b'R', ..] => field.name.eq_ignore_ascii_case(b"range"),
        _ => false,
    })
}

/// Adds the tag and the date of a file, as far as there are such.
fn validated(item: &Item, mut response: Response) -> Result<Response, EncodeError> {
    if let Some(tag) = &item.validators.etag {
        response = response.header("ETag", tag)?;
    }
    if let Some(date) = &item.modified {
        response = response.header("Last-Modified", date)?;
    }
    Ok(response)
}

/// Adds the header lines of a file to a response.
fn described(route: &Route, item: &Item, varies: bool, response: Response) -> Result<Response, EncodeError> {
    let mut response = validated(item, response)?.header("Accept-Ranges", "bytes")?;
    if !route.steps.lines().any(|(name, _)| name.eq_ignore_ascii_case("content-type")) {
        response = response.header("Content-Type", &item.content_type)?;
    }
    if let Some(coding) = item.coding {
        response = response.header("Content-Encoding", coding.name())?;
    }
    if varies {
        response = response.header("Vary", "Accept-Encoding")?;
    }
    for (name, value) in route.steps.lines() {
        response = response.header(name, value)?;
    }
    Ok(response)
}

/// 304, with what a cache compares and updates (RFC 9110 §15.4.5).
fn unchanged(route: &Route, item: &Item, varies: bool) -> Result<Response, EncodeError> {
    let mut response = validated(item, Response::empty(Status::NOT_MODIFIED))?;
    if varies {
        response = response.header("Vary", "Accept-Encoding")?;
    }
    let of_body = |name: &str| name.eq_ignore_ascii_case("content-type");
    for (name, value) in route.steps.lines().filter(|(name, _)| !of_body(name)) {
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
    context: &Context,
) -> Result<Answer, EncodeError> {
    let (whole, boundary) = (item.identity.bytes, context.id().to_owned());
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
    let (body, watch) = item.content.send(pieces, bytes);
    let response = Response::new(body).status(Status::PARTIAL_CONTENT);
    let response = response.header("Content-Type", format!("multipart/byteranges; boundary={boundary}"))?;
    let response = validated(item, response)?;
    let mut response = match item.coding {
        Some(coding) => response.header("Content-Encoding", coding.name())?,
        None => response,
    };
    if varies {
        response = response.header("Vary", "Accept-Encoding")?;
    }
    let own = |name: &str| name.eq_ignore_ascii_case("content-type");
    for (name, value) in route.steps.lines().filter(|(name, _)| !own(name)) {
        response = response.header(name, value)?;
    }
    Ok(Answer { response, watch })
}

fn allow(response: Response) -> Result<Response, EncodeError> {
    response.header("Allow", "GET, HEAD, OPTIONS")
}

/// Returns the answer where nothing is served.
pub(crate) fn refusal(why: Refused, context: &Context) -> Answer {
    match why {
        Refused::Missing | Refused::Outside => page::missing(context),
        Refused::Forbidden => page::refusal(Status::FORBIDDEN, context, "The server may not read this."),
        Refused::Busy | Refused::Leased | Refused::WouldWait => {
            page::refusal(Status::SERVICE_UNAVAILABLE, context, "The server is busy. Try again in a moment.")
        }
        Refused::Failed(why) => {
            context.fault(format!("reading the file: {why}"));
            page::refusal(Status::INTERNAL_SERVER_ERROR, context, "The file cannot be read.")
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn files_on_another_machine_are_asked_for_on_another_thread() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("file"), "x").unwrap();
        let here = std::thread::current().id();
        let runtime = ringroad_engine::Runtime::new(ringroad_engine::DriverName::Poll).unwrap();
        for (root, same) in [
            (Root::open(folder.path()).unwrap(), true),
            (Root::open(folder.path()).unwrap().made_remote(), false),
        ] {
            let root = Arc::new(root);
            let asked = Arc::clone(&root);
            let found = runtime.block_on(async move { identity(&asked, b"file").await }).unwrap();
            assert!(found.is_some());
            assert_eq!(*root.asked_by.lock().unwrap() == Some(here), same);
            if !same {
                assert!(matches!(root.find(b"file", Patience::None), Err(Refused::WouldWait)));
            }
        }
    }

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

    fn item(bytes: u64) -> Rc<Item> {
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(bytes).unwrap();
        let identity = Identity::of_open(file.as_file()).unwrap();
        Rc::new(Item {
            identity,
            content: Content::Memory(Rc::from([])),
            validators: Validators::new(&identity, None, "", SystemTime::now(), || 0),
            modified: None,
            content_type: String::new(),
            coding: None,
            siblings: Cell::new(0),
            forms: Cell::default(),
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
