//! `ringroad cat`: prints files and block devices, read through the ring with many reads in flight.
//!
//! Order is kept, and memory is bounded by block size times queue depth. A file that cannot be read is
//! reported and skipped; the exit code is then 1. `uring::ReadAhead` does the reads; this file opens sources,
//! decides how each is read, and prints messages.

use crate::complaint::{self, DONE, FAILED, USAGE, say, why};
use crate::flags::{CatFlags, Common};
use ringroad_engine::DriverName;
use ringroad_engine::choose::{self, Origin, Wish};
use ringroad_host::standard::was_closed;
use ringroad_uring::{DIRECT_ALIGNMENT, ReadAhead, ReadError, Ring, Source};
use rustix::event::{PollFd, PollFlags, poll};
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::process::ExitCode;

pub(crate) fn run(flags: &CatFlags, common: &Common) -> ExitCode {
    let settings = match Settings::of(flags) {
        Ok(settings) => settings,
        Err(message) => {
            say(&message);
            return ExitCode::from(USAGE);
        }
    };
    let mut reader = match reader(common.driver, &settings) {
        Ok((reader, note)) => {
            if let Some(note) = note
                && !common.quiet
            {
                say(&note);
            }
            reader
        }
        Err(message) => {
            say(&message);
            return ExitCode::from(USAGE);
        }
    };
    if common.verbose > 0 {
        say(&reader.describe(&settings));
    }

    let out = match Output::new() {
        Ok(out) => out,
        Err(error) => {
            say(&format!("write, on standard output: {}", why(&error)));
            return ExitCode::from(FAILED);
        }
    };
    let stdin = [Path::new("-")];
    let mut files: Vec<&Path> = flags.files.iter().map(|path| path.as_path()).collect();
    if files.is_empty() {
        files.extend(stdin);
    }
    let mut code = DONE;
    for path in files {
        match print(path, &mut reader, &out, flags.direct) {
            Ok(bytes) if common.verbose > 0 => {
                say(&format!("{}: {bytes} bytes{}", name(path), reader.calls()))
            }
            Ok(_) => {}
            // The reader of the output has closed it: stop without a message.
            Err(Problem::Output(error)) if error.kind() == io::ErrorKind::BrokenPipe => {
                return ExitCode::from(FAILED);
            }
            Err(Problem::Output(error)) => {
                say(&format!("write, on standard output: {}", why(&error)));
                return ExitCode::from(FAILED);
            }
            Err(Problem::Ring(error)) => {
                say(&format!(
                    "io_uring_enter, while reading {}: {} (try --driver threads)",
                    name(path),
                    why(&error)
                ));
                return ExitCode::from(FAILED);
            }
            Err(Problem::Input(message)) => {
                say(&message);
                code = FAILED;
            }
        }
    }
    ExitCode::from(code)
}

/// Settings of the ring and its blocks.
struct Settings {
    block_bytes: u32,
    depth: u32,
    sqpoll: bool,
}

impl Settings {
    fn of(flags: &CatFlags) -> Result<Settings, String> {
        let mut settings =
            Settings { block_bytes: flags.block_size, depth: flags.queue_depth, sqpoll: false };
        for word in &flags.uring {
            match word.split_once('=') {
                None if word == "sqpoll" => settings.sqpoll = true,
                Some(("entries", number)) => match number.parse() {
                    Ok(entries @ 1..=4096) => settings.depth = entries,
                    _ => return Err(format!("--uring entries={number}: from 1 to 4096")),
                },
                _ => return Err(format!("--uring {word}: not known here (sqpoll, entries=N)")),
            }
        }
        if flags.direct && !settings.block_bytes.is_multiple_of(DIRECT_ALIGNMENT) {
            return Err(format!(
                "--block-size {}: with --direct a block is a multiple of {DIRECT_ALIGNMENT} bytes",
                settings.block_bytes
            ));
        }
        // Blocks are reserved at once; a typing error must not take all memory.
        let total = u64::from(settings.block_bytes) * u64::from(settings.depth.next_power_of_two());
        if total > 4 << 30 {
            return Err(format!("--block-size times --queue-depth is {total} bytes: at most 4 GiB"));
        }
        Ok(settings)
    }
}

enum Reader {
    Ring(Box<ReadAhead>),
    /// A buffer of one block, with room to begin it at an aligned address.
    Plain(Vec<u8>),
}

impl Reader {
    /// Returns the number of calls so far, where they are counted.
    fn calls(&self) -> String {
        match self {
            Reader::Ring(ahead) => format!(", {} system calls so far", ahead.enters()),
            Reader::Plain(_) => String::new(),
        }
    }

    fn describe(&self, settings: &Settings) -> String {
        match self {
            Reader::Ring(ahead) => {
                format!("io_uring: {} reads of {} bytes in flight", ahead.depth(), settings.block_bytes)
            }
            Reader::Plain(_) => format!("plain reads of {} bytes", settings.block_bytes),
        }
    }
}

/// Returns the reader, and a message about the choice. Files are always ready, so every driver except
/// io_uring uses plain reads.
fn reader(asked: Option<Wish>, settings: &Settings) -> Result<(Reader, Option<String>), String> {
    let plain = || Reader::Plain(vec![0; settings.block_bytes as usize + DIRECT_ALIGNMENT as usize]);
    let (wish, origin) = choose::wish(asked, None).map_err(|unusable| unusable.to_string())?;
    if !matches!(wish, Wish::Auto | Wish::Named(DriverName::IoUring)) {
        return Ok((plain(), None));
    }
    let ring = || {
        choose::may_make_rings().map_err(|refusal| refusal.to_string())?;
        let mut builder = Ring::builder(settings.depth);
        if settings.sqpoll {
            builder = builder.sqpoll(100);
        }
        ReadAhead::new(builder, settings.block_bytes).map_err(|error| error.to_string())
    };
    match (ring(), wish) {
        (Ok(ahead), _) => Ok((Reader::Ring(Box::new(ahead)), None)),
        (Err(error), Wish::Auto) => Ok((plain(), Some(format!("{error}: using plain reads")))),
        (Err(error), Wish::Named(_)) => {
            let by = if origin == Origin::Environment { "RINGROAD_DRIVER=" } else { "--driver " };
            Err(format!("{error} ({by}auto falls back to plain reads)"))
        }
    }
}

/// The reason why a file was not printed completely.
enum Problem {
    /// Printed as it is; the next file follows.
    Input(String),
    Output(io::Error),
    Ring(io::Error),
}

/// Standard output, unbuffered because blocks are large, and the identity of its file.
struct Output {
    file: File,
    regular: Option<(u64, u64)>,
}

impl Output {
    fn new() -> io::Result<Output> {
        if was_closed(1) {
            return Err(complaint::no_stream());
        }
        let file = File::from(io::stdout().as_fd().try_clone_to_owned()?);
        let about = file.metadata()?;
        Ok(Output { regular: about.is_file().then_some((about.dev(), about.ino())), file })
    }

    /// Returns whether reading `input` would return what was just written, without end (the rule of GNU cat).
    fn feeds(&self, input: &mut File, length: u64) -> bool {
        let Some(output) = self.regular else { return false };
        let same = input.metadata().is_ok_and(|about| (about.dev(), about.ino()) == output);
        same && input.stream_position().is_ok_and(|position| position < length)
    }
}

fn name(path: &Path) -> String {
    if path == Path::new("-") { "standard input".to_string() } else { complaint::name(path) }
}

fn print(path: &Path, reader: &mut Reader, out: &Output, direct: bool) -> Result<u64, Problem> {
    let input = |what: &str, error: &io::Error, hint: &str| {
        Problem::Input(format!("{what}, on {}: {}{hint}", name(path), why(error)))
    };
    let mut file = open(path, direct).map_err(|error| {
        let hint = match error.raw_os_error() {
            Some(libc::EINVAL) if direct => " (this file system has no O_DIRECT: leave --direct out)",
            _ => "",
        };
        input("open", &error, hint)
    })?;
    let about = file.metadata().map_err(|error| input("stat", &error, ""))?;
    let kind = about.file_type();
    if kind.is_dir() {
        return Err(Problem::Input(format!("read, on {}: Is a directory", name(path))));
    }
    if kind.is_file() && out.feeds(&mut file, about.len()) {
        return Err(Problem::Input(format!(
            "read, on {}: the output goes to the same file and would never end",
            name(path)
        )));
    }
    // Standard input may be a file that was read in part: then its own position counts.
    let from_start = path != Path::new("-");
    let source = if from_start && (kind.is_file() || kind.is_block_device()) {
        // The length of a device is where its end is; its metadata says zero.
        let size = if kind.is_file() { about.len() } else { file.seek(SeekFrom::End(0)).unwrap_or(0) };
        Source::Positioned { size }
    } else {
        Source::Stream
    };
    let mut write = |bytes: &[u8]| (&out.file).write_all(bytes);
    match reader {
        Reader::Ring(ahead) => ahead.read(file.as_fd(), source, &mut write).map_err(|error| match error {
            ReadError::Source { offset, error } => input(&format!("read at byte {offset}"), &error, ""),
            ReadError::Sink(error) => Problem::Output(error),
            ReadError::Ring(error) => Problem::Ring(error),
        }),
        Reader::Plain(buffer) => {
            let skip = buffer.as_ptr().align_offset(DIRECT_ALIGNMENT as usize);
            let end = buffer.len() - DIRECT_ALIGNMENT as usize + skip;
            let block = buffer.get_mut(skip..end).unwrap_or_default();
            plainly(&mut file, block, source, direct, &mut write).map_err(|error| match error {
                ReadError::Source { offset, error } => input(&format!("read at byte {offset}"), &error, ""),
                ReadError::Sink(error) | ReadError::Ring(error) => Problem::Output(error),
            })
        }
    }
}

/// Does the same as `ReadAhead::read`, one plain read after another.
fn plainly(
    file: &mut File,
    block: &mut [u8],
    source: Source,
    direct: bool,
    sink: &mut dyn FnMut(&[u8]) -> io::Result<()>,
) -> Result<u64, ReadError> {
    let mut offset = 0;
    if source != Source::Stream {
        // A device was asked for its end.
        file.rewind().map_err(|error| ReadError::Source { offset, error })?;
    }
    loop {
        match file.read(block) {
            Ok(0) => return Ok(offset),
            Ok(count) => {
                sink(block.get(..count).unwrap_or_default()).map_err(ReadError::Sink)?;
                offset += count as u64;
                // A direct read from here would not be aligned, and there is nothing left to read.
                let off_alignment = offset % u64::from(DIRECT_ALIGNMENT) != 0;
                if direct && off_alignment && matches!(source, Source::Positioned { size } if offset >= size)
                {
                    return Ok(offset);
                }
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            // The input is non-blocking, set by another process that shares it: wait here.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                wait(file).map_err(|error| ReadError::Source { offset, error })?;
            }
            Err(error) => return Err(ReadError::Source { offset, error }),
        }
    }
}

/// Sleeps until `file` has bytes, its end, or an error, which the next read returns.
fn wait(file: &File) -> io::Result<()> {
    let mut files = [PollFd::new(file, PollFlags::IN)];
    match poll(&mut files, None) {
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

fn open(path: &Path, direct: bool) -> io::Result<File> {
    if path == Path::new("-") {
        if was_closed(0) {
            return Err(complaint::no_stream());
        }
        let fd: OwnedFd = io::stdin().as_fd().try_clone_to_owned()?;
        return Ok(File::from(fd));
    }
    File::options().read(true).custom_flags(if direct { libc::O_DIRECT } else { 0 }).open(path)
}
