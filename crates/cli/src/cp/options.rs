//! Turns the words of the command line into the copier's options: GNU's options, this project's, and the
//! rules for the destination.
//!
//! [`parse`] is the whole of it. It reads the file system for one question only: whether the last operand is
//! a directory to copy into, which with `--resume` it is not if it is an interrupted copy (`resume.rs`). The
//! words themselves are in `words`. Mistakes come back as [`Usage`], which knows both GNU's words and whether
//! `--help` would help.

use super::getopt::{Mistake, Reader};
use super::quote::{self, Charset};
use super::resume::{Standing, standing};
use super::words::{
    BACKUPS, Choices, DRIVERS, DURABILITIES, ENGINES, EXTRA, GNU, Id, ORDERS, PROPERTIES, Property, REFLINK,
    SPARSE, UPDATE,
};
use crate::foreign;
use crate::parts::{self, Given};
use ringroad_copy::{
    Backup, BackupKind, Demand, Dereference, Destination, Engine, FilesFrom, Link, Options, Part, Preserve,
    Reflink, Sparse, Update,
};
use std::ffi::{OsStr, OsString};
use std::io;
use std::num::NonZeroU64;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// The environment variables that take part, read once.
#[derive(Clone, Debug)]
pub(super) struct Environment {
    pub(super) charset: Charset,
    /// POSIXLY_CORRECT is set.
    pub(super) strict: bool,
    /// SIMPLE_BACKUP_SUFFIX.
    pub(super) suffix: Option<OsString>,
    /// VERSION_CONTROL.
    pub(super) control: Option<OsString>,
    /// RINGROAD_DRIVER.
    pub(super) driver: Option<OsString>,
    /// LD_PRELOAD or FAKEROOTKEY is set.
    pub(super) interposed: bool,
    /// Whether RINGROAD_PARTS and what engines for jobs set may divide a copy of a tree.
    pub(super) divides: bool,
}

impl Environment {
    pub(super) fn read() -> Environment {
        Environment {
            charset: Charset::of_environment(),
            strict: std::env::var_os("POSIXLY_CORRECT").is_some(),
            suffix: std::env::var_os("SIMPLE_BACKUP_SUFFIX"),
            control: std::env::var_os("VERSION_CONTROL"),
            driver: std::env::var_os("RINGROAD_DRIVER"),
            interposed: interposed(),
            divides: true,
        }
    }
}

/// Returns whether libraries stand before libc: those of LD_PRELOAD, which fakeroot sets too.
pub(super) fn interposed() -> bool {
    ["LD_PRELOAD", "FAKEROOTKEY"]
        .iter()
        .any(|name| std::env::var_os(name).is_some_and(|value| !value.is_empty()))
}

/// The request of the command line.
#[derive(Debug)]
pub(super) enum Wish {
    Help,
    Version,
    Copy(Box<Request>),
    /// List a source in a file.
    List(Box<Listing>),
}

/// A list to be made.
#[derive(Debug)]
pub(super) struct Listing {
    pub(super) options: Options,
    pub(super) source: PathBuf,
    pub(super) file: PathBuf,
    pub(super) quiet: bool,
}

/// A copy, and the form of its output.
#[derive(Debug)]
pub(super) struct Request {
    pub(super) options: Options,
    pub(super) sources: Vec<PathBuf>,
    pub(super) destination: Destination,
    pub(super) verbose: bool,
    /// Print how each file was copied.
    pub(super) debug: bool,
    pub(super) quiet: bool,
    pub(super) json: bool,
    /// With `--resume`: what an existing directory as the destination was taken for.
    pub(super) standing: Option<Standing>,
}

/// A usage error.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Usage {
    pub(super) message: String,
    /// GNU points to `--help` after some mistakes and not after others.
    pub(super) point_to_help: bool,
    /// What to type here instead of another program's option; under the name `cp` it is not printed.
    pub(super) meant: Option<&'static str>,
}

impl Usage {
    fn new(message: impl Into<String>) -> Usage {
        Usage { message: message.into(), point_to_help: true, meant: None }
    }

    fn plain(message: impl Into<String>) -> Usage {
        Usage { message: message.into(), point_to_help: false, meant: None }
    }
}

/// The options so far.
struct Line<'a> {
    environment: &'a Environment,
    options: Options,
    dereference: Option<Dereference>,
    copy_contents: bool,
    /// `-a` was given: attributes that are not kept are not worth a word.
    archive: bool,
    /// `--preserve=xattr` was given: they are an error.
    xattr_must: bool,
    /// `-b`, `--backup` or `-S` was given.
    backup: bool,
    control: Option<OsString>,
    suffix: Option<OsString>,
    /// The last of `-i` and `-n`.
    no_clobber: bool,
    link_hard: bool,
    link_symbolic: bool,
    target_directory: Option<PathBuf>,
    no_target_directory: bool,
    engine: Option<(&'static str, Engine)>,
    verbose: bool,
    debug: bool,
    quiet: bool,
    json: bool,
    standing: Option<Standing>,
    part: Option<OsString>,
    parts: Option<u32>,
    make_list: Option<PathBuf>,
    /// `-0`.
    nul: bool,
    /// Receives warnings.
    warn: &'a mut dyn FnMut(&str),
}

/// Parses the words after the verb, or after the program's name. Warnings are passed on immediately, before a
/// later mistake.
pub(super) fn parse(
    words: Vec<OsString>,
    environment: &Environment,
    warn: &mut dyn FnMut(&str),
) -> Result<Wish, Usage> {
    let mut line = Line {
        environment,
        options: Options::default(),
        dereference: None,
        copy_contents: false,
        archive: false,
        xattr_must: false,
        backup: false,
        control: None,
        suffix: environment.suffix.clone(),
        no_clobber: false,
        link_hard: false,
        link_symbolic: false,
        target_directory: None,
        no_target_directory: false,
        engine: None,
        verbose: false,
        debug: false,
        quiet: false,
        json: false,
        standing: None,
        part: None,
        parts: None,
        make_list: None,
        nul: false,
        warn,
    };
    let mut reader = Reader::new(GNU, EXTRA, words, environment.strict);
    loop {
        match reader.next() {
            Ok(Some((Id::Help, _))) => return Ok(Wish::Help),
            Ok(Some((Id::Version, _))) => return Ok(Wish::Version),
            Ok(Some((id, value))) => line.take(id, value)?,
            Ok(None) if line.make_list.is_some() => return line.listing(reader.operands()),
            Ok(None) => return line.finish(reader.operands()).map(|request| Wish::Copy(Box::new(request))),
            Err(mistake) => return Err(Usage { meant: meant(&mistake), ..Usage::new(say(&mistake)) }),
        }
    }
}

/// Returns what an option of another program that copies is here.
fn meant(mistake: &Mistake) -> Option<&'static str> {
    match mistake {
        Mistake::UnknownLong(word) => foreign::copy_option(&word.to_string_lossy()),
        Mistake::UnknownShort(letter) => foreign::copy_option(&format!("-{}", char::from(*letter))),
        _ => None,
    }
}

fn say(mistake: &Mistake) -> String {
    match mistake {
        Mistake::UnknownLong(word) => format!("unrecognized option '{}'", word.to_string_lossy()),
        Mistake::UnknownShort(letter) => {
            format!("invalid option -- '{}'", OsStr::from_bytes(&[*letter]).display())
        }
        Mistake::Ambiguous(word, names) => {
            let names: Vec<String> = names.iter().map(|name| format!(" '--{name}'")).collect();
            format!("option '{}' is ambiguous; possibilities:{}", word.to_string_lossy(), names.concat())
        }
        Mistake::LongNeedsValue(name) => format!("option '--{name}' requires an argument"),
        Mistake::ShortNeedsValue(letter) => {
            format!("option requires an argument -- '{}'", char::from(*letter))
        }
        Mistake::NoValue(name) => format!("option '--{name}' doesn't allow an argument"),
    }
}

impl Line<'_> {
    /// Takes one option. A later option overrides an earlier one about the same thing.
    fn take(&mut self, id: Id, value: Option<OsString>) -> Result<(), Usage> {
        let options = &mut self.options;
        match id {
            Id::Archive => {
                self.archive = true;
                self.dereference = Some(Dereference::Never);
                options.preserve = Preserve::ALL;
                options.recursive = true;
                options.default_modes = false;
            }
            Id::AttributesOnly => options.attributes_only = true,
            Id::Backup => {
                self.backup = true;
                self.control = value.or(self.control.take());
            }
            Id::BackupPlain => self.backup = true,
            Id::CopyContents => self.copy_contents = true,
            Id::Debug => {
                self.debug = true;
                self.verbose = true;
            }
            Id::Dereference => self.dereference = Some(Dereference::Always),
            Id::NoDereference => self.dereference = Some(Dereference::Never),
            Id::OperandLinks => self.dereference = Some(Dereference::Operands),
            Id::LinksAsThey => {
                self.dereference = Some(Dereference::Never);
                options.preserve.links = true;
            }
            Id::Force => options.force = true,
            Id::Interactive => {
                options.interactive = true;
                self.no_clobber = false;
            }
            Id::NoClobber => {
                options.interactive = false;
                self.no_clobber = true;
            }
            Id::KeepDirectorySymlink => options.keep_directory_symlink = true,
            Id::HardLink => self.link_hard = true,
            Id::SymbolicLink => self.link_symbolic = true,
            Id::NoTargetDirectory => self.no_target_directory = true,
            Id::TargetDirectory => {
                if self.target_directory.is_some() {
                    return Err(Usage::plain("multiple target directories specified"));
                }
                self.target_directory = value.map(PathBuf::from);
            }
            Id::OneFileSystem => options.one_file_system = true,
            Id::Parents => options.parents = true,
            Id::PreserveDefault => self.preserve_default(),
            Id::Preserve => match value {
                None => self.preserve_default(),
                Some(list) => self.properties(&list, "--preserve", true)?,
            },
            Id::NoPreserve => self.properties(&value.unwrap_or_default(), "--no-preserve", false)?,
            Id::Recursive => options.recursive = true,
            Id::RemoveDestination => options.remove_destination = true,
            Id::Sparse => self.options.sparse = self.choose(value, "--sparse", SPARSE)?,
            Id::Reflink => {
                self.options.reflink = match value {
                    None => Reflink::Always,
                    value => self.choose(value, "--reflink", REFLINK)?,
                }
            }
            Id::Strip => options.strip_trailing_slashes = true,
            Id::Suffix => {
                self.backup = true;
                self.suffix = value;
            }
            Id::Update => {
                self.options.update = match value {
                    None => Update::Older,
                    value => self.choose(value, "--update", UPDATE)?,
                }
            }
            Id::Verbose => self.verbose = true,
            Id::Context => {
                if value.is_some() {
                    let warning = "ignoring --context; it requires an SELinux-enabled kernel";
                    (self.warn)(warning);
                }
            }
            Id::Help | Id::Version => {}
            Id::Resume => options.resume = true,
            Id::Atomic => options.atomic = true,
            Id::DryRun => options.dry_run = true,
            Id::Verify => options.verify = true,
            Id::Manifest => options.manifest = value.map(PathBuf::from),
            Id::Exclude => {
                let glob = value.unwrap_or_default();
                let glob = glob.into_string().map_err(|glob| {
                    let glob = quote::word(&glob, self.environment.charset);
                    Usage::new(format!("--exclude {glob}: not UTF-8, as patterns must be"))
                })?;
                options.exclude.push(glob);
            }
            Id::Retries => options.retries = number(value, "--retries", 0..=1000)? as u32,
            Id::Part => self.part = Some(value.unwrap_or_default()),
            Id::Parts => self.parts = Some(number(value, "--parts", 1..=1_000_000)? as u32),
            Id::Finish => options.finish = true,
            Id::MakeList => self.make_list = value.map(PathBuf::from),
            Id::List => options.list = value.map(PathBuf::from),
            Id::Journal => options.journal = value.map(PathBuf::from),
            Id::FilesFrom => {
                let file = value.map(PathBuf::from);
                options.files_from = file.map(|file| FilesFrom { file, nul: false });
            }
            Id::FromZero => self.nul = true,
            Id::UpdateFromManifest => options.update_from_manifest = value.map(PathBuf::from),
            Id::Delete => options.delete = true,
            Id::MaxDelete => {
                options.max_delete = Some(number(value, "--max-delete", 0..=usize::MAX)? as u64);
            }
            Id::Rate => options.rate = Some(rate(value)?),
            Id::Engine => self.engine(value, "--engine", ENGINES)?,
            Id::Driver => self.engine(value, "--driver", DRIVERS)?,
            Id::Jobs => options.jobs = Some(number(value, "--jobs", 1..=1024)?),
            Id::InFlight => options.in_flight = Some(number(value, "--in-flight", 1..=4096)?),
            Id::Order => self.options.order = self.choose(value, "--order", ORDERS)?,
            Id::Direct => options.direct = true,
            Id::Durability => self.options.durability = self.choose(value, "--durability", DURABILITIES)?,
            Id::Explain => options.explain = true,
            Id::Json => self.json = true,
            Id::Quiet => self.quiet = true,
        }
        Ok(())
    }

    fn preserve_default(&mut self) {
        let preserve = &mut self.options.preserve;
        *preserve = Preserve { links: preserve.links, xattr: preserve.xattr, ..Preserve::DEFAULT };
        self.options.default_modes = false;
    }

    fn properties(&mut self, list: &OsStr, option: &str, on: bool) -> Result<(), Usage> {
        for name in list.as_bytes().split(|byte| *byte == b',') {
            let property = self.choose(Some(OsStr::from_bytes(name).to_os_string()), option, PROPERTIES)?;
            let preserve = &mut self.options.preserve;
            match property {
                Property::Mode => preserve.mode = on,
                Property::Timestamps => preserve.timestamps = on,
                Property::Ownership => preserve.ownership = on,
                Property::Links => preserve.links = on,
                Property::Xattr => {
                    preserve.xattr = if on { Demand::Must } else { Demand::No };
                    self.xattr_must = on;
                }
                Property::All if on => *preserve = Preserve::ALL,
                Property::All => *preserve = Preserve::default(),
                Property::Context if on => {
                    let message = "cannot preserve security context without an SELinux-enabled kernel";
                    return Err(Usage::plain(message));
                }
                Property::Context => {}
            }
            if matches!(property, Property::Mode | Property::All) {
                self.options.default_modes = !on;
            }
        }
        Ok(())
    }

    fn engine(
        &mut self,
        value: Option<OsString>,
        option: &'static str,
        names: Choices<Engine>,
    ) -> Result<(), Usage> {
        let engine = self.choose(value, option, names)?;
        match self.engine {
            Some((other, named)) if other != option && named != engine => {
                Err(Usage::new(format!("{option} and {other} name different engines; one is enough")))
            }
            _ => {
                self.engine = Some((option, engine));
                Ok(())
            }
        }
    }

    /// One of a few names, or a beginning that means one of them.
    fn choose<T: Copy + PartialEq>(
        &self,
        value: Option<OsString>,
        option: &str,
        choices: Choices<T>,
    ) -> Result<T, Usage> {
        let value = value.unwrap_or_default();
        let all = || choices.iter().flat_map(|(names, meaning)| names.iter().map(|name| (*name, *meaning)));
        if let Some((_, meaning)) = all().find(|(name, _)| *name == value) {
            return Ok(meaning);
        }
        let mut begun = all().filter(|(name, _)| name.as_bytes().starts_with(value.as_bytes()));
        let what = match begun.next() {
            Some((_, meaning)) if begun.all(|(_, other)| other == meaning) => return Ok(meaning),
            Some(_) => "ambiguous",
            None => "invalid",
        };
        let charset = self.environment.charset;
        let (value, option) = (quote::word(&value, charset), quote::word(option, charset));
        let mut message = format!("{what} argument {value} for {option}\nValid arguments are:");
        for (names, _) in choices {
            let names: Vec<String> = names.iter().map(|name| quote::word(name, charset)).collect();
            message.push_str(&format!("\n  - {}", names.join(", ")));
        }
        Err(Usage::new(message))
    }

    /// Returns a list instead of a copy.
    fn listing(mut self, operands: Vec<OsString>) -> Result<Wish, Usage> {
        let [source] = &operands[..] else {
            return Err(Usage::new("--make-list: one SOURCE is expected, and no DEST"));
        };
        if self.options.list.is_some() || self.options.files_from.is_some() || self.part.is_some() {
            return Err(Usage::new(
                "--make-list lists a whole tree: without --list, --files-from and --part",
            ));
        }
        self.options.dereference = self.dereference.unwrap_or(Dereference::Never);
        let (options, quiet, source) = (self.options, self.quiet, PathBuf::from(source));
        let file = self.make_list.unwrap_or_default();
        Ok(Wish::List(Box::new(Listing { options, source, file, quiet })))
    }

    /// Combines the options, and assigns the operands.
    fn finish(mut self, operands: Vec<OsString>) -> Result<Request, Usage> {
        if self.link_hard && self.link_symbolic {
            return Err(Usage::new("cannot make both hard and symbolic links"));
        }
        if self.backup && (self.no_clobber || matches!(self.options.update, Update::None | Update::NoneFail))
        {
            let message = if self.no_clobber {
                "options --backup and --no-clobber are mutually exclusive"
            } else {
                "--backup is mutually exclusive with -n or --update=none-fail"
            };
            return Err(Usage::new(message));
        }
        if self.options.reflink == Reflink::Always && self.options.sparse != Sparse::Auto {
            return Err(Usage::new("--reflink can be used only with --sparse=auto"));
        }
        // Sharing blocks, or copying in the file system, shares or keeps holes too.
        if self.options.sparse == Sparse::Never {
            self.options.reflink = Reflink::Never;
        }
        if self.no_clobber {
            self.options.update = Update::None;
        }
        if self.backup {
            self.options.backup = self.backup()?;
        }
        let options = &mut self.options;
        if options.preserve.xattr != Demand::No {
            options.preserve.xattr = match (self.xattr_must, self.archive && !options.attributes_only) {
                (true, _) => Demand::Must,
                (false, true) => Demand::Try,
                (false, false) => Demand::Warn,
            };
        }
        options.link = match (self.link_hard, self.link_symbolic) {
            (true, _) => Link::Hard,
            (_, true) => Link::Symbolic,
            _ => Link::No,
        };
        if options.force && options.link != Link::No {
            options.remove_destination = true;
        }
        let divides = self.environment.divides && options.recursive;
        if self.part.is_some() || self.parts.is_some() || (divides && !options.finish) {
            options.part = part(self.part.as_deref(), self.parts)?;
        }
        options.resume |= options.part.is_some() || options.finish || options.journal.is_some();
        match &mut options.files_from {
            // It would be an empty list, of which nothing is copied.
            Some(from) if from.file == Path::new("-") && ringroad_host::standard::was_closed(0) => {
                return Err(Usage::new("--files-from -: standard input is closed"));
            }
            Some(from) => from.nul = self.nul,
            None if self.nul => return Err(Usage::new("-0 is about the names of --files-from")),
            None => {}
        }
        options.through_dangling = self.environment.strict;
        options.copy_contents = options.recursive && self.copy_contents;
        options.dereference = self.dereference.unwrap_or({
            if options.recursive && !self.link_hard { Dereference::Never } else { Dereference::Always }
        });
        self.options.interposed = self.environment.interposed;
        self.options.engine = match self.engine {
            Some((_, engine)) => engine,
            None => self.engine_of_environment()?,
        };
        let (sources, mut destination) = self.destination(operands)?;
        if let (Some(backup), true, [source]) = (&self.options.backup, self.options.force, sources.as_slice())
            && destination == Destination::At(source.clone())
            && std::fs::metadata(source).is_ok_and(|about| about.is_file())
        {
            // With -f and -b, a file copied onto itself is copied to its backup.
            destination = Destination::At(backup_of(source, backup));
            self.options.backup = None;
        }
        let Line { options, verbose, debug, quiet, json, standing, .. } = self;
        Ok(Request { options, sources, destination, verbose, debug, quiet, json, standing })
    }

    /// Readiness drivers have no file operations: they mean threads here.
    fn engine_of_environment(&self) -> Result<Engine, Usage> {
        let name = self.environment.driver.as_deref().and_then(OsStr::to_str);
        match name {
            None | Some("" | "auto") => Ok(Engine::Auto),
            Some("io_uring" | "uring") => Ok(Engine::Ring),
            Some("threads" | "epoll" | "poll" | "select") => Ok(Engine::Threads),
            Some(other) => {
                let message = format!(
                    "RINGROAD_DRIVER={other}: not a driver (available: auto, io_uring, epoll, poll, select, threads)"
                );
                Err(Usage::plain(message))
            }
        }
    }

    fn backup(&self) -> Result<Option<Backup>, Usage> {
        // An empty word has no meaning.
        let said = |control: &Option<OsString>| control.clone().filter(|control| !control.is_empty());
        let kind = match (said(&self.control), said(&self.environment.control)) {
            (Some(control), _) => self.choose(Some(control), "backup type", BACKUPS)?,
            (None, Some(control)) => self.choose(Some(control), "$VERSION_CONTROL", BACKUPS)?,
            (None, None) => Some(BackupKind::Existing),
        };
        let usable = |suffix: &&OsString| !suffix.is_empty() && !suffix.as_bytes().contains(&b'/');
        let suffix = self.suffix.as_ref().filter(usable).cloned().unwrap_or_else(|| "~".into());
        Ok(kind.map(|kind| Backup { kind, suffix }))
    }

    /// Takes the last operand, which is a directory to copy into, or the name of the copy.
    fn destination(&mut self, operands: Vec<OsString>) -> Result<(Vec<PathBuf>, Destination), Usage> {
        let mut sources: Vec<PathBuf> = operands.into_iter().map(PathBuf::from).collect();
        let name = |path: &Path| quote::file(path, self.environment.charset);
        let refused = |what: &str, path: &Path, why: io::Error| {
            Usage::plain(format!("{what} {}: {}", name(path), crate::complaint::why(&why)))
        };
        if sources.len() <= usize::from(self.target_directory.is_none()) {
            return Err(Usage::new(match sources.first() {
                None => "missing file operand".to_string(),
                Some(only) => format!("missing destination file operand after {}", name(only)),
            }));
        }
        if let Some(folder) = self.target_directory.take() {
            if self.no_target_directory {
                let message = "cannot combine --target-directory (-t) and --no-target-directory (-T)";
                return Err(Usage::plain(message));
            }
            is_directory(&folder).map_err(|why| refused("target directory", &folder, why))?;
            return Ok((sources, Destination::Into(folder)));
        }
        let last = sources.pop().unwrap_or_default();
        // Whether it exists depends on which part came first.
        let shared = self.options.part.is_some() || self.options.finish || self.options.journal.is_some();
        let destination = if self.no_target_directory || (shared && sources.len() == 1) {
            if let Some(extra) = sources.get(1) {
                // The third operand; the second was meant as the destination.
                let extra = if sources.len() > 2 { sources.get(2).unwrap_or(extra) } else { &last };
                return Err(Usage::new(format!("extra operand {}", name(extra))));
            }
            Destination::At(last)
        } else {
            match is_directory(&last) {
                Ok(()) => {
                    let follow = self.options.dereference != Dereference::Never;
                    let is_asked = self.options.resume && self.options.recursive && !self.options.parents;
                    self.standing = match sources.as_slice() {
                        [source] if is_asked => standing(source, &last, follow),
                        _ => None,
                    };
                    match (self.standing, sources.first()) {
                        (Some(Standing::Copy), _) => Destination::At(last),
                        (Some(Standing::Unclear), Some(source)) => {
                            let (source, target) = (name(source), name(&last));
                            return Err(Usage::plain(format!(
                                "--resume: {target} has entries of {source} and others, so it may be an interrupted copy \
                                 or a directory to copy into: add -T to go on in {target}, or give -t {target} to copy into it"
                            )));
                        }
                        _ => Destination::Into(last),
                    }
                }
                Err(why) if sources.len() > 1 => return Err(refused("target", &last, why)),
                Err(_) => Destination::At(last),
            }
        };
        if self.options.parents && matches!(destination, Destination::At(_)) {
            return Err(Usage::new("with --parents, the destination must be a directory"));
        }
        Ok((sources, destination))
    }
}

/// Returns the name a file's backup would have.
fn backup_of(path: &Path, backup: &Backup) -> PathBuf {
    let name = path.file_name().unwrap_or_default().as_bytes();
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let number = |found: OsString| {
        let digits = found.as_bytes().strip_prefix(name)?.strip_prefix(b".~")?.strip_suffix(b"~")?;
        std::str::from_utf8(digits).ok()?.parse::<u64>().ok()
    };
    let names = std::fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.file_name());
    let highest = names.filter_map(number).max();
    let mut target = path.as_os_str().to_os_string();
    match (backup.kind, highest) {
        (BackupKind::Simple, _) | (BackupKind::Existing, None) => target.push(&backup.suffix),
        (_, highest) => target.push(format!(".~{}~", highest.unwrap_or(0) + 1)),
    }
    target.into()
}

/// Returns the part of a copy that is asked for, or that an engine for jobs names where a number of parts is
/// given.
fn part(given: Option<&OsStr>, parts: Option<u32>) -> Result<Option<Part>, Usage> {
    let text = given.map(OsStr::to_string_lossy);
    let found = parts::of(Given { part: text.as_deref(), parts, slurm: false }).map_err(Usage::new)?;
    Ok(found.map(|found| Part { index: found.split.index, count: found.split.count }))
}

/// Bytes per second: a number with a unit of 1024 (k, M, G) or of 1000 (kB, MB, GB).
fn rate(value: Option<OsString>) -> Result<NonZeroU64, Usage> {
    let value = value.unwrap_or_default();
    let text = value.to_str().unwrap_or_default().trim();
    let digits = text.find(|letter: char| !letter.is_ascii_digit() && letter != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let unit = match unit.to_ascii_lowercase().as_str() {
        "" | "b" => Some(1.0),
        "k" | "kib" => Some(1024.0),
        "m" | "mib" => Some(1024.0 * 1024.0),
        "g" | "gib" => Some(1024.0 * 1024.0 * 1024.0),
        "kb" => Some(1e3),
        "mb" => Some(1e6),
        "gb" => Some(1e9),
        _ => None,
    };
    let bytes = number.parse::<f64>().ok().zip(unit).map(|(number, unit)| number * unit);
    // Beyond the range it is the end of the range.
    let bytes = bytes.filter(|bytes| *bytes >= 1.0).and_then(|bytes| NonZeroU64::new(bytes as u64));
    bytes.ok_or_else(|| {
        Usage::new(format!("--rate {}: bytes per second, as 800k, 20M, 1.5G", value.display()))
    })
}

fn is_directory(path: &Path) -> io::Result<()> {
    if std::fs::metadata(path)?.is_dir() { Ok(()) } else { Err(rustix::io::Errno::NOTDIR.into()) }
}

fn number(
    value: Option<OsString>,
    option: &str,
    range: std::ops::RangeInclusive<usize>,
) -> Result<usize, Usage> {
    let value = value.unwrap_or_default();
    let number = value.to_str().and_then(|text| text.parse().ok()).filter(|number| range.contains(number));
    number.ok_or_else(|| {
        let (least, most) = (range.start(), range.end());
        Usage::new(format!("{option} {}: a number from {least} to {most}", value.display()))
    })
}
