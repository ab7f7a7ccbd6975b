//! A file system for tests, spoken to the kernel through `/dev/fuse`: files in memory, and faults on demand.
//!
//! It flips bits, hangs, fails, reads short, keeps coarse times, and remembers what was written since the
//! last sync, so that a disk image on it can be had as a power failure would leave it. Start at
//! [`Fuse::mount`] and [`Faults`].

use rustix::mount::{MountFlags, UnmountFlags};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

/// What goes wrong. By default nothing.
#[derive(Clone, Debug, Default)]
pub(crate) struct Faults {
    /// Bytes of files of this name are stored with one bit changed, while the page cache keeps what was
    /// written.
    pub(crate) flip: Option<&'static str>,
    /// Reads of files of this name are never answered.
    pub(crate) hang: Option<&'static str>,
    /// Reads of files of this name fail with this number.
    pub(crate) read_fails: Option<(&'static str, i32)>,
    /// Reads before this byte do not fail.
    pub(crate) read_fails_from: usize,
    /// The failures of reads end after so many; `None`: never.
    pub(crate) read_fails_times: Option<u32>,
    /// Listings of directories of this name fail with this number.
    pub(crate) list_fails: Option<(&'static str, i32)>,
    /// The failures of listings end after so many; `None`: never.
    pub(crate) list_fails_times: Option<u32>,
    /// Writes to files of this name fail with this number.
    pub(crate) write_fails: Option<(&'static str, i32)>,
    /// A read answers at most so many bytes, although the file has more.
    pub(crate) read_most: Option<usize>,
    /// Times are multiples of so many nanoseconds; 0 is 1.
    pub(crate) step_ns: u64,
    /// A file that is there may be opened for writing only with `O_TRUNC`, as in object stores.
    pub(crate) only_emptied: bool,
    /// The size of a file cannot be set.
    pub(crate) no_size: bool,
    /// Requests with these opcodes are answered with these numbers.
    pub(crate) refuses: &'static [(u32, i32)],
    /// Every look at a file tells another inode number.
    pub(crate) numbers_anew: bool,
    /// The type that the listing tells of entries of this name (`DT_DIR` is 4, `DT_REG` 8, `DT_LNK` 10).
    pub(crate) listed_as: &'static [(&'static str, u32)],
    /// Reads and writes through a descriptor with `O_NONBLOCK` are answered with `EAGAIN`.
    pub(crate) no_nonblock: bool,
    /// Files bypass the page cache (`FOPEN_DIRECT_IO`).
    pub(crate) uncached: bool,
    /// The size that is told of a file is so many bytes less than it has.
    pub(crate) hides: u64,
    /// An open with `O_NONBLOCK` is answered with `EAGAIN`.
    pub(crate) opens_wait: bool,
    /// Writes are remembered, for [`Fuse::after_power_failure`].
    pub(crate) records: bool,
}

#[derive(Debug, Default)]
struct Node {
    parent: u64,
    name: String,
    directory: bool,
    mode: u32,
    uid: u32,
    gid: u32,
    bytes: Vec<u8>,
    /// Last access, change of contents, change of status.
    times: [Duration; 3],
    children: BTreeMap<String, u64>,
    /// The contents at the last sync, and the writes since.
    synced: Vec<u8>,
    since: Vec<(usize, Vec<u8>)>,
}

#[derive(Debug, Default)]
struct State {
    faults: Faults,
    nodes: BTreeMap<u64, Node>,
    last: u64,
    numbers: std::sync::atomic::AtomicU64,
}

/// The mounted file system, unmounted when dropped.
#[derive(Debug)]
pub(crate) struct Fuse {
    pub(crate) mounted: PathBuf,
    state: Arc<Mutex<State>>,
    server: Option<std::thread::JoinHandle<()>>,
    _place: tempfile::TempDir,
}

const ROOT: u64 = 1;
/// Bytes of a request's head and of an answer's.
const REQUEST_BYTES: usize = 40;
/// The largest write that is asked for.
const WRITE_BYTES: usize = 128 << 10;
const EPERM: i32 = 1;
const ENOENT: i32 = 2;
const EAGAIN: i32 = 11;
const NONBLOCK: u32 = 0o4000;
const EIO: i32 = 5;
const ENOTEMPTY: i32 = 39;
const ENOSYS: i32 = 38;
const EEXIST: i32 = 17;

impl Fuse {
    /// `None`, with the reason on stderr, where it cannot be mounted.
    pub(crate) fn mount(faults: Faults) -> Option<Fuse> {
        let skip = |why: String| {
            eprintln!("skipped: a file system with faults: {why}");
            None
        };
        if !rustix::process::geteuid().is_root() {
            return skip("mounting needs root".into());
        }
        let device = match File::options().read(true).write(true).open("/dev/fuse") {
            Ok(device) => device,
            Err(why) => return skip(format!("/dev/fuse: {why}")),
        };
        let place = tempfile::tempdir().unwrap();
        let mounted = place.path().join("mounted");
        std::fs::create_dir(&mounted).unwrap();
        let data = format!("fd={},rootmode=40000,user_id=0,group_id=0,allow_other", device.as_raw_fd());
        let data = std::ffi::CString::new(data).unwrap();
        if let Err(why) = rustix::mount::mount("faults", &mounted, "fuse", MountFlags::empty(), &*data) {
            return skip(format!("mount: {why}"));
        }
        let mut state = State { faults, last: ROOT, ..State::default() };
        let now = state.now();
        let root = Node { directory: true, mode: 0o755, times: [now; 3], ..Node::default() };
        state.nodes.insert(ROOT, root);
        let state = Arc::new(Mutex::new(state));
        let own = Arc::clone(&state);
        let server = std::thread::spawn(move || serve(device, &own));
        Some(Fuse { mounted, state, server: Some(server), _place: place })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Other faults from now on.
    pub(crate) fn set(&self, faults: Faults) {
        self.state().faults = faults;
    }

    /// The bytes of a file of this name as a disk may have them after a power failure at this moment: what
    /// was synced is there; of what was written since, `keeps` says for each write in turn.
    #[allow(dead_code, reason = "the command line's tests share this file and crash no disk")]
    pub(crate) fn after_power_failure(&self, name: &str, mut keeps: impl FnMut() -> bool) -> Vec<u8> {
        let state = self.state();
        let node = state.nodes.values().find(|node| node.name == name).unwrap();
        let mut bytes = node.synced.clone();
        bytes.resize(node.bytes.len().max(bytes.len()), 0);
        for (at, written) in &node.since {
            if keeps() {
                bytes[*at..*at + written.len()].copy_from_slice(written);
            }
        }
        bytes
    }
}

impl Drop for Fuse {
    fn drop(&mut self) {
        // By force: requests that were never answered end now.
        let _ = rustix::mount::unmount(&self.mounted, UnmountFlags::FORCE | UnmountFlags::DETACH);
        if let Some(server) = self.server.take() {
            let _ = server.join();
        }
    }
}

/// Answers requests until the file system is unmounted.
fn serve(mut device: File, state: &Mutex<State>) {
    let mut request = vec![0; WRITE_BYTES + (64 << 10)];
    loop {
        let length = match device.read(&mut request) {
            Ok(length) => length,
            Err(why) if why.kind() == std::io::ErrorKind::Interrupted => continue,
            // ENOENT: the request was interrupted before it was read. ENODEV: unmounted.
            Err(why) if why.raw_os_error() == Some(ENOENT) => continue,
            Err(_) => return,
        };
        let request = &request[..length];
        let mut state = state.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(answer) = state.answer(request) {
            let unique = &request[8..16];
            let (error, body) = match answer {
                Ok(body) => (0, body),
                Err(number) => (-number, Vec::new()),
            };
            let mut bytes = ((16 + body.len()) as u32).to_ne_bytes().to_vec();
            bytes.extend_from_slice(&error.to_ne_bytes());
            bytes.extend_from_slice(unique);
            bytes.extend_from_slice(&body);
            // The kernel gave the request up meanwhile: nothing is lost.
            let _ = device.write_all(&bytes);
        }
    }
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_ne_bytes(bytes[at..at + 4].try_into().unwrap())
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_ne_bytes(bytes[at..at + 8].try_into().unwrap())
}

/// The name that a request's body begins with at `at`.
fn name_at(bytes: &[u8], at: usize) -> String {
    let end = bytes[at..].iter().position(|byte| *byte == 0).map_or(bytes.len(), |end| at + end);
    String::from_utf8_lossy(&bytes[at..end]).into_owned()
}

type Answer = Option<Result<Vec<u8>, i32>>;

impl State {
    fn now(&self) -> Duration {
        self.coarse(SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap())
    }

    fn coarse(&self, time: Duration) -> Duration {
        let step = u128::from(self.faults.step_ns.max(1));
        Duration::from_nanos((time.as_nanos() / step * step) as u64)
    }

    fn touch(&mut self, id: u64, times: &[usize]) {
        let now = self.now();
        if let Some(node) = self.nodes.get_mut(&id) {
            times.iter().for_each(|at| node.times[*at] = now);
        }
    }

    /// Opcodes and layouts: `linux/fuse.h`, version 7.31.
    fn answer(&mut self, request: &[u8]) -> Answer {
        let (opcode, id) = (u32_at(request, 4), u64_at(request, 16));
        let (uid, gid) = (u32_at(request, 24), u32_at(request, 28));
        let body = &request[REQUEST_BYTES..];
        if !self.nodes.contains_key(&id) && !matches!(opcode, 2 | 26 | 36 | 38 | 42) {
            return Some(Err(ENOENT));
        }
        if let Some((_, number)) = self.faults.refuses.iter().find(|(refused, _)| *refused == opcode) {
            return Some(Err(*number));
        }
        Some(match opcode {
            // LOOKUP
            1 => match self.child(id, &name_at(body, 0)) {
                Some(child) => Ok(self.entry(child)),
                None => Err(ENOENT),
            },
            // FORGET, INTERRUPT, BATCH_FORGET: no answer.
            2 | 36 | 42 => return None,
            // GETATTR
            3 => Ok(self.attributes(id)),
            4 => self.set_attributes(id, body),
            // MKDIR: mode, umask, name. MKNOD: mode, device, umask, padding, name.
            9 => {
                self.make(id, name_at(body, 8), true, u32_at(body, 0), (uid, gid)).map(|new| self.entry(new))
            }
            8 => self
                .make(id, name_at(body, 16), false, u32_at(body, 0), (uid, gid))
                .map(|new| self.entry(new)),
            // UNLINK, RMDIR
            10 | 11 => self.remove(id, &name_at(body, 0)),
            // RENAME, RENAME2
            12 => self.rename(id, u64_at(body, 0), name_at(body, 8), &body[8..]),
            45 => self.rename(id, u64_at(body, 0), name_at(body, 16), &body[16..]),
            14 => self.open(id, u32_at(body, 0)),
            27 => Ok(opened(false)),
            15 => return self.read(id, body),
            16 => self.write(id, body),
            // STATFS
            17 => {
                let mut answer = vec![0; 80];
                for (at, value) in
                    [(0, 1_u64 << 20), (8, 1 << 19), (16, 1 << 19), (24, 1 << 20), (32, 1 << 19)]
                {
                    answer[at..at + 8].copy_from_slice(&value.to_ne_bytes());
                }
                for (at, value) in [(40, 4096_u32), (44, 255), (48, 4096)] {
                    answer[at..at + 4].copy_from_slice(&value.to_ne_bytes());
                }
                Ok(answer)
            }
            // RELEASE, FLUSH, RELEASEDIR, DESTROY
            18 | 25 | 29 | 38 => Ok(Vec::new()),
            // FSYNC
            20 => {
                if let Some(node) = self.nodes.get_mut(&id).filter(|_| self.faults.records) {
                    node.synced.clone_from(&node.bytes);
                    node.since.clear();
                }
                Ok(Vec::new())
            }
            // INIT: version, read-ahead, flags (reads ahead without waiting, opens empty files themselves,
            // large writes), largest write.
            26 => {
                let mut answer = vec![0; 64];
                for (at, value) in
                    [(0, 7_u32), (4, 31), (8, 128 << 10), (12, 0x29), (20, WRITE_BYTES as u32), (24, 1)]
                {
                    answer[at..at + 4].copy_from_slice(&value.to_ne_bytes());
                }
                Ok(answer)
            }
            28 => match self.list_fails(id) {
                Some(number) => Err(number),
                None => self.list(id, body),
            },
            // CREATE: flags, mode, umask, more, name.
            35 => self.make(id, name_at(body, 16), false, u32_at(body, 4), (uid, gid)).map(|new| {
                let mut answer = self.entry(new);
                answer.extend(opened(true));
                answer
            }),
            _ => Err(ENOSYS),
        })
    }

    /// The number that a listing fails with.
    fn list_fails(&mut self, id: u64) -> Option<i32> {
        let (name, number) = self.faults.list_fails?;
        if self.nodes.get(&id).is_none_or(|node| node.name != name) {
            return None;
        }
        match &mut self.faults.list_fails_times {
            Some(0) => return None,
            Some(left) => *left -= 1,
            None => {}
        }
        Some(number)
    }

    fn child(&self, id: u64, name: &str) -> Option<u64> {
        self.nodes.get(&id)?.children.get(name).copied()
    }

    fn make(
        &mut self,
        parent: u64,
        name: String,
        directory: bool,
        mode: u32,
        (uid, gid): (u32, u32),
    ) -> Result<u64, i32> {
        if self.child(parent, &name).is_some() {
            return Err(EEXIST);
        }
        self.last += 1;
        let (id, now) = (self.last, self.now());
        let node =
            Node { parent, name: name.clone(), directory, mode: mode & 0o7777, uid, gid, ..Node::default() };
        self.nodes.insert(id, Node { times: [now; 3], ..node });
        if let Some(parent) = self.nodes.get_mut(&parent) {
            parent.children.insert(name, id);
        }
        self.touch(parent, &[1, 2]);
        Ok(id)
    }

    fn remove(&mut self, parent: u64, name: &str) -> Result<Vec<u8>, i32> {
        let id = self.child(parent, name).ok_or(ENOENT)?;
        if self.nodes.get(&id).is_some_and(|node| !node.children.is_empty()) {
            return Err(ENOTEMPTY);
        }
        // The node stays: it may be open.
        self.nodes.get_mut(&parent).ok_or(ENOENT)?.children.remove(name);
        self.touch(parent, &[1, 2]);
        Ok(Vec::new())
    }

    fn rename(&mut self, from: u64, to: u64, old: String, names: &[u8]) -> Result<Vec<u8>, i32> {
        let new = name_at(names, old.len() + 1);
        let id = self.nodes.get_mut(&from).ok_or(ENOENT)?.children.remove(&old).ok_or(ENOENT)?;
        self.nodes.get_mut(&to).ok_or(ENOENT)?.children.insert(new.clone(), id);
        let node = self.nodes.get_mut(&id).ok_or(ENOENT)?;
        (node.parent, node.name) = (to, new);
        Ok(Vec::new())
    }

    /// OPEN: a handle, and FOPEN_KEEP_CACHE, or FOPEN_DIRECT_IO where each read shall be seen.
    fn open(&mut self, id: u64, flags: u32) -> Result<Vec<u8>, i32> {
        const TRUNC: u32 = 0o1000;
        let (writes, empties) = (flags & 3 != 0, flags & TRUNC != 0);
        if writes && !empties && self.faults.only_emptied {
            return Err(EPERM);
        }
        if self.faults.opens_wait && flags & NONBLOCK != 0 {
            return Err(EAGAIN);
        }
        if empties && let Some(node) = self.nodes.get_mut(&id) {
            node.bytes.clear();
            self.touch(id, &[1, 2]);
        }
        let mut answer = opened(true);
        if self.faults.no_nonblock || self.faults.uncached {
            answer[8] = 1;
        }
        Ok(answer)
    }

    fn read(&mut self, id: u64, body: &[u8]) -> Answer {
        if self.faults.no_nonblock && u32_at(body, 32) & NONBLOCK != 0 {
            return Some(Err(EAGAIN));
        }
        let (offset, size) = (u64_at(body, 8) as usize, u32_at(body, 16) as usize);
        let node = self.nodes.get(&id)?;
        let named = |wanted: Option<&str>| wanted == Some(node.name.as_str());
        if named(self.faults.hang) {
            return None;
        }
        let fails = self.faults.read_fails.filter(|(name, _)| named(Some(name)));
        if let Some((_, number)) = fails.filter(|_| offset + size > self.faults.read_fails_from) {
            match &mut self.faults.read_fails_times {
                Some(0) => {}
                Some(left) => {
                    *left -= 1;
                    return Some(Err(number));
                }
                None => return Some(Err(number)),
            }
        }
        let size = size.min(self.faults.read_most.unwrap_or(size));
        let end = node.bytes.len().min(offset + size);
        Some(Ok(node.bytes.get(offset..end).unwrap_or_default().to_vec()))
    }

    fn write(&mut self, id: u64, body: &[u8]) -> Result<Vec<u8>, i32> {
        let (offset, size) = (u64_at(body, 8) as usize, u32_at(body, 16) as usize);
        if self.faults.no_nonblock && u32_at(body, 32) & NONBLOCK != 0 {
            return Err(EAGAIN);
        }
        let mut data = body[40..40 + size].to_vec();
        let faults = self.faults.clone();
        let node = self.nodes.get_mut(&id).ok_or(EIO)?;
        if let Some((_, number)) = faults.write_fails.filter(|(name, _)| *name == node.name) {
            return Err(number);
        }
        if faults.flip == Some(node.name.as_str())
            && let Some(byte) = data.first_mut()
        {
            *byte ^= 0x10;
        }
        if node.bytes.len() < offset + size {
            node.bytes.resize(offset + size, 0);
        }
        node.bytes[offset..offset + size].copy_from_slice(&data);
        if faults.records {
            node.since.push((offset, data));
        }
        self.touch(id, &[1, 2]);
        let mut answer = (size as u32).to_ne_bytes().to_vec();
        answer.extend([0; 4]);
        Ok(answer)
    }

    /// SETATTR: which, padding, handle, size, lock, three times, their nanoseconds, mode, unused, owner,
    /// group.
    fn set_attributes(&mut self, id: u64, body: &[u8]) -> Result<Vec<u8>, i32> {
        let which = u32_at(body, 0);
        let has = |bit: u32| which & (1 << bit) != 0;
        if has(3) && self.faults.no_size {
            return Err(EPERM);
        }
        let now = self.now();
        let time = |at: usize, nanos: usize| Duration::new(u64_at(body, at), u32_at(body, nanos));
        let (accessed, changed) = (self.coarse(time(32, 56)), self.coarse(time(40, 60)));
        let node = self.nodes.get_mut(&id).ok_or(ENOENT)?;
        if has(0) {
            node.mode = u32_at(body, 68) & 0o7777;
        }
        if has(1) {
            node.uid = u32_at(body, 76);
        }
        if has(2) {
            node.gid = u32_at(body, 80);
        }
        if has(3) {
            node.bytes.resize(u64_at(body, 16) as usize, 0);
            node.times[1] = now;
        }
        if has(4) {
            node.times[0] = if has(7) { now } else { accessed };
        }
        if has(5) {
            node.times[1] = if has(8) { now } else { changed };
        }
        node.times[2] = now;
        Ok(self.attributes(id))
    }

    /// The attributes of a node, valid for no time, so that the kernel asks again.
    fn attributes(&self, id: u64) -> Vec<u8> {
        let mut answer = vec![0; 16];
        answer.extend(self.inode(id));
        answer
    }

    /// A node for a name: its number, generation, how long both are valid, attributes.
    fn entry(&self, id: u64) -> Vec<u8> {
        let mut answer = id.to_ne_bytes().to_vec();
        answer.extend([0; 32]);
        answer.extend(self.inode(id));
        answer
    }

    fn inode(&self, id: u64) -> Vec<u8> {
        let node = &self.nodes[&id];
        let size = (node.bytes.len() as u64).saturating_sub(self.faults.hides);
        let mut bytes = Vec::new();
        let number = if self.faults.numbers_anew && !node.directory { self.number() } else { id };
        for value in [number, size, size.div_ceil(512)] {
            bytes.extend(value.to_ne_bytes());
        }
        node.times.iter().for_each(|time| bytes.extend(time.as_secs().to_ne_bytes()));
        node.times.iter().for_each(|time| bytes.extend(time.subsec_nanos().to_ne_bytes()));
        let kind = if node.directory { 0o040_000 } else { 0o100_000 };
        for value in [kind | node.mode, if node.directory { 2 } else { 1 }, node.uid, node.gid, 0, 4096, 0] {
            bytes.extend(value.to_ne_bytes());
        }
        bytes
    }

    /// A number that no file had before.
    fn number(&self) -> u64 {
        self.numbers.fetch_add(1, std::sync::atomic::Ordering::Relaxed) + (1 << 20)
    }

    fn list(&self, id: u64, body: &[u8]) -> Result<Vec<u8>, i32> {
        let (offset, size) = (u64_at(body, 8) as usize, u32_at(body, 16) as usize);
        let mut answer = Vec::new();
        for (at, (name, id)) in self.nodes[&id].children.iter().enumerate().skip(offset) {
            let padded = (24 + name.len()).div_ceil(8) * 8;
            if answer.len() + padded > size {
                break;
            }
            let kind: u32 = if self.nodes[id].directory { 4 } else { 8 };
            let told = self.faults.listed_as.iter().find(|(told, _)| told == name);
            let kind = told.map_or(kind, |(_, kind)| *kind);
            let end = answer.len() + padded;
            answer.extend(id.to_ne_bytes());
            answer.extend((at as u64 + 1).to_ne_bytes());
            answer.extend((name.len() as u32).to_ne_bytes());
            answer.extend(kind.to_ne_bytes());
            answer.extend(name.as_bytes());
            answer.resize(end, 0);
        }
        Ok(answer)
    }
}

/// The answer to an open: a handle, flags, padding. `keeps`: what is cached stays cached.
fn opened(keeps: bool) -> Vec<u8> {
    let mut answer = vec![0; 16];
    answer[8] = if keeps { 2 } else { 0 };
    answer
}

/// Puts a file there, without the page cache knowing it.
#[allow(dead_code, reason = "not every test needs it")]
pub(crate) fn put(fuse: &Fuse, name: &str, bytes: &[u8]) -> PathBuf {
    let path = fuse.mounted.join(name);
    std::fs::write(&path, bytes).unwrap();
    drop_cached(&path);
    path
}

#[allow(dead_code, reason = "not every test needs it")]
pub(crate) fn drop_cached(path: &Path) {
    let file = File::open(path).unwrap();
    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
}
