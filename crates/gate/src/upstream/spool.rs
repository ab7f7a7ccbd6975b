//! Bytes between a fast side and a slow one: in memory first, then in a temporary file.
//!
//! A request is collected before a server is taken, so that a slow client never holds one ([`Collected`]); an
//! answer is received as fast as its server sends, so that a slow client does not hold the server either
//! ([`Spool`]). The file has no name: it is gone when it is closed, also after a crash. Memory per exchange
//! is bounded by [`Limits::memory`], the file by [`Limits::file`]; past both the fast side waits.

use ringroad_engine::fs::File;
use ringroad_http::{BodyError, Chunk, RequestBody};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::future::poll_fn;
use std::io;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::rc::Rc;
use std::task::{Poll, Waker};

/// How much is kept between the two sides.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes in memory.
    pub memory: u64,
    /// Bytes in the temporary file besides; 0: none, past the memory the fast side waits.
    pub file: u64,
    /// The folder of temporary files.
    pub folder: PathBuf,
}

impl Default for Limits {
    /// 64 KiB in memory and 1 GiB in the system's folder for temporary files.
    fn default() -> Limits {
        Limits { memory: 64 << 10, file: 1 << 30, folder: std::env::temp_dir() }
    }
}

/// Most bytes of one read of the file.
const READ_BYTES: usize = 64 << 10;
/// Bytes that are gathered before one write to the file.
const WRITE_BYTES: usize = 64 << 10;

/// Returns a file without a name, made on a thread of the blocking pool: a full disk may take long to say so.
async fn unnamed(folder: &Path) -> io::Result<File> {
    let folder = folder.to_owned();
    let made = ringroad_engine::spawn_blocking(move || tempfile::tempfile_in(&folder)).await;
    let file = made.map_err(|why| io::Error::other(why.to_string()))??;
    Ok(File::from_std(file))
}

/// Why a request was not collected.
#[derive(Debug)]
pub enum CollectError {
    /// Receiving it failed.
    Body(BodyError),
    /// Writing the temporary file failed.
    File(io::Error),
}

/// A request's body, all of it: can be sent as often as needed.
#[derive(Debug)]
pub struct Collected {
    memory: Vec<Vec<u8>>,
    file: Option<Rc<File>>,
    /// Bytes in the file, which come behind those in memory.
    filed: u64,
    size: u64,
    trailers: Vec<(String, Vec<u8>)>,
}

impl Collected {
    /// Receives a body to its end. What is beyond the memory's limit goes to a file. The body's own limit
    /// bounds both: [`Limits::file`] is not looked at.
    ///
    /// # Errors
    /// The client's, or the disk's.
    pub async fn collect(mut body: RequestBody, limits: &Limits) -> Result<Collected, CollectError> {
        let mut all = Collected { memory: Vec::new(), file: None, filed: 0, size: 0, trailers: Vec::new() };
        let mut gathered = Vec::new();
        while let Some(piece) = body.next().await {
            let piece = piece.map_err(CollectError::Body)?;
            let bytes = piece.len() as u64;
            all.size += bytes;
            if all.file.is_none() && all.size <= limits.memory {
                all.memory.push(piece.into_vec());
                continue;
            }
            gathered.extend_from_slice(&piece);
            if gathered.len() >= WRITE_BYTES {
                gathered = all.write(gathered, limits).await.map_err(CollectError::File)?;
            }
        }
        if !gathered.is_empty() {
            all.write(gathered, limits).await.map_err(CollectError::File)?;
        }
        all.trailers = body.trailers();
        Ok(all)
    }

    /// Appends to the file, and gives the emptied buffer back.
    async fn write(&mut self, bytes: Vec<u8>, limits: &Limits) -> io::Result<Vec<u8>> {
        let file = match &self.file {
            Some(file) => Rc::clone(file),
            None => Rc::clone(self.file.insert(Rc::new(unnamed(&limits.folder).await?))),
        };
        let length = bytes.len() as u64;
        let (written, mut bytes) = file.write_all_at(bytes, self.filed).await;
        written.map_err(|why| io::Error::other(why.to_string()))?;
        self.filed += length;
        bytes.clear();
        Ok(bytes)
    }

    /// Returns how many bytes the body has.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Returns whether all of it is in memory.
    pub fn is_in_memory(&self) -> bool {
        self.file.is_none()
    }

    /// Returns the body, from its beginning.
    pub fn body(self: &Rc<Collected>) -> RequestBody {
        if self.size == 0 && self.trailers.is_empty() {
            return RequestBody::empty();
        }
        let stream = Reading { of: Rc::clone(self), piece: 0, offset: 0, read: None };
        RequestBody::stream(Some(self.size), stream).with_trailers(self.trailers.clone())
    }
}

/// Pieces of a collected body.
struct Reading {
    of: Rc<Collected>,
    piece: usize,
    offset: u64,
    #[allow(clippy::type_complexity, reason = "a read under way, named nowhere else")]
    read: Option<std::pin::Pin<Box<dyn Future<Output = io::Result<Vec<u8>>>>>>,
}

impl futures_core::Stream for Reading {
    type Item = Result<Chunk, BodyError>;

    fn poll_next(
        mut self: std::pin::Pin<&mut Self>,
        context: &mut std::task::Context<'_>,
    ) -> Poll<Option<Self::Item>> {
        let this = &mut *self;
        if let Some(bytes) = this.of.memory.get(this.piece) {
            this.piece += 1;
            return Poll::Ready(Some(Ok(Chunk::from(bytes.clone()))));
        }
        let Some(file) = this.of.file.as_ref().filter(|_| this.offset < this.of.filed) else {
            return Poll::Ready(None);
        };
        let left = this.of.filed - this.offset;
        let read = this.read.get_or_insert_with(|| Box::pin(read_at(Rc::clone(file), this.offset, left)));
        let read = std::task::ready!(read.as_mut().poll(context));
        this.read = None;
        match read {
            Ok(bytes) => {
                this.offset += bytes.len() as u64;
                Poll::Ready(Some(Ok(Chunk::from(bytes))))
            }
            Err(why) => {
                this.offset = this.of.filed;
                Poll::Ready(Some(Err(BodyError::Source(why.into()))))
            }
        }
    }
}

/// Up to [`READ_BYTES`] of a file, at least one.
async fn read_at(file: Rc<File>, offset: u64, left: u64) -> io::Result<Vec<u8>> {
    let room = usize::try_from(left).unwrap_or(usize::MAX).min(READ_BYTES);
    let (read, bytes) = file.read_exact_at(Vec::with_capacity(room), room, offset).await;
    read.map_err(|why| io::Error::other(format!("temporary file: {why}")))?;
    Ok(bytes)
}

/// A queue of bytes with a writing side and a reading side, in memory first and then in a file.
#[derive(Debug)]
pub struct Spool {
    limits: Limits,
    inner: RefCell<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    queue: VecDeque<Chunk>,
    /// Bytes in the queue.
    queued: u64,
    file: Option<Rc<File>>,
    /// Bytes in the file, and those of them that were read.
    written: u64,
    read: u64,
    /// How it ended; `None` while it has not.
    ended: Option<Result<(), String>>,
    /// The reading side is gone.
    abandoned: bool,
    reader: Option<Waker>,
    writer: Option<Waker>,
    /// Waits for the end of the reading side.
    left: Option<Waker>,
}

impl Inner {
    fn in_file(&self) -> u64 {
        self.written - self.read
    }

    fn wake_reader(&mut self) {
        if let Some(waker) = self.reader.take() {
            waker.wake();
        }
    }
}

/// The reading side was dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Abandoned;

impl Spool {
    /// Makes an empty spool.
    pub fn new(limits: Limits) -> Rc<Spool> {
        Rc::new(Spool { limits, inner: RefCell::default() })
    }

    /// Appends a piece. Waits only where memory and file are full. An error of the disk ends the spool for
    /// the reader.
    ///
    /// # Errors
    /// The reading side is gone.
    pub async fn write(&self, piece: Chunk) -> Result<(), Abandoned> {
        let bytes = piece.len() as u64;
        let mut piece = Some(piece);
        let fits = poll_fn(|context| {
            let mut inner = self.inner.borrow_mut();
            if inner.abandoned || inner.ended.is_some() {
                return Poll::Ready(Err(Abandoned));
            }
            // What is in the file comes behind what is in the queue, and before what comes now.
            let behind_file = inner.in_file() > 0;
            if !behind_file && (inner.queue.is_empty() || inner.queued + bytes <= self.limits.memory) {
                inner.queued += bytes;
                inner.queue.extend(piece.take());
                inner.wake_reader();
                return Poll::Ready(Ok(true));
            }
            if inner.in_file() + bytes <= self.limits.file {
                return Poll::Ready(Ok(false));
            }
            inner.writer = Some(context.waker().clone());
            Poll::Pending
        });
        if fits.await? {
            return Ok(());
        }
        let Some(piece) = piece else { return Ok(()) };
        let done = self.write_to_file(piece).await;
        let mut inner = self.inner.borrow_mut();
        if let Err(why) = done {
            inner.ended = Some(Err(format!("temporary file in {}: {why}", self.limits.folder.display())));
        }
        inner.wake_reader();
        if inner.abandoned || inner.ended.is_some() { Err(Abandoned) } else { Ok(()) }
    }

    async fn write_to_file(&self, piece: Chunk) -> io::Result<()> {
        let known = self.inner.borrow().file.clone();
        let file = match known {
            Some(file) => file,
            None => {
                let file = Rc::new(unnamed(&self.limits.folder).await?);
                self.inner.borrow_mut().file = Some(Rc::clone(&file));
                file
            }
        };
        let at = {
            let mut inner = self.inner.borrow_mut();
            // Nothing of it is unread: the next bytes take its beginning again.
            if inner.in_file() == 0 {
                (inner.written, inner.read) = (0, 0);
            }
            inner.written
        };
        let bytes = piece.len() as u64;
        let (written, _) = file.write_all_at(piece.into_vec(), at).await;
        written.map_err(|why| io::Error::other(why.to_string()))?;
        self.inner.borrow_mut().written = at + bytes;
        Ok(())
    }

    /// Ends the spool; with the reason if that is a failure.
    pub fn end(&self, how: Result<(), String>) {
        let mut inner = self.inner.borrow_mut();
        inner.ended.get_or_insert(how);
        inner.wake_reader();
    }

    /// Waits for `next`, which the writing side writes; `None`: the reading side is gone before it has come.
    pub async fn unless_abandoned<T>(&self, next: impl Future<Output = T>) -> Option<T> {
        let mut next = pin!(next);
        poll_fn(|context| {
            {
                let mut inner = self.inner.borrow_mut();
                if inner.abandoned {
                    return Poll::Ready(None);
                }
                inner.left = Some(context.waker().clone());
            }
            next.as_mut().poll(context).map(Some)
        })
        .await
    }

    /// Returns the reading side; there is one.
    pub fn reader(self: &Rc<Spool>) -> Reader {
        Reader { spool: Rc::clone(self), read: None }
    }
}

/// The reading side of a [`Spool`]: a stream of its bytes. Dropped, it tells the writing side that nothing
/// more is wanted.
pub struct Reader {
    spool: Rc<Spool>,
    #[allow(clippy::type_complexity, reason = "a read under way, named nowhere else")]
    read: Option<std::pin::Pin<Box<dyn Future<Output = io::Result<Vec<u8>>>>>>,
}

impl std::fmt::Debug for Reader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.spool.fmt(f)
    }
}

impl futures_core::Stream for Reader {
    type Item = Result<Chunk, String>;

    fn poll_next(
        mut self: std::pin::Pin<&mut Self>,
        context: &mut std::task::Context<'_>,
    ) -> Poll<Option<Self::Item>> {
        let this = &mut *self;
        if let Some(read) = &mut this.read {
            let read = std::task::ready!(read.as_mut().poll(context));
            this.read = None;
            let mut inner = this.spool.inner.borrow_mut();
            if let Some(waker) = inner.writer.take() {
                waker.wake();
            }
            return Poll::Ready(Some(match read {
                Ok(bytes) => {
                    inner.read += bytes.len() as u64;
                    Ok(Chunk::from(bytes))
                }
                Err(why) => {
                    inner.read = inner.written;
                    Err(why.to_string())
                }
            }));
        }
        let mut inner = this.spool.inner.borrow_mut();
        if let Some(piece) = inner.queue.pop_front() {
            inner.queued -= piece.len() as u64;
            if let Some(waker) = inner.writer.take() {
                waker.wake();
            }
            return Poll::Ready(Some(Ok(piece)));
        }
        let (unread, at) = (inner.in_file(), inner.read);
        match inner.file.clone().filter(|_| unread > 0) {
            Some(file) => {
                drop(inner);
                this.read = Some(Box::pin(read_at(file, at, unread)));
                std::pin::Pin::new(this).poll_next(context)
            }
            None => match inner.ended.clone() {
                Some(Ok(())) => Poll::Ready(None),
                Some(Err(why)) => {
                    inner.ended = Some(Ok(()));
                    Poll::Ready(Some(Err(why)))
                }
                None => {
                    inner.reader = Some(context.waker().clone());
                    Poll::Pending
                }
            },
        }
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        let mut inner = self.spool.inner.borrow_mut();
        inner.abandoned = true;
        inner.queue.clear();
        inner.queued = 0;
        for waker in [inner.writer.take(), inner.left.take()] {
            waker.into_iter().for_each(Waker::wake);
        }
    }
}
