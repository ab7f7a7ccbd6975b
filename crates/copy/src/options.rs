//! The options of a copy, as data. The names are GNU `cp`'s where it has the option.
//!
//! Pure data. `plan.rs` decides how the options apply to an entry.

use crate::parts::Part;
use std::num::NonZeroU64;
use std::path::PathBuf;

/// All options of a copy. The default is `cp` without options: regular files, links followed,
/// existing files overwritten, nothing preserved but the permission bits the umask leaves.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// `-R`: directories are copied with what is in them.
    pub recursive: bool,
    /// `-P`, `-H`, `-L`: which symbolic links of the source are followed.
    pub dereference: Dereference,
    /// `--preserve`: which properties the copy takes from its source.
    pub preserve: Preserve,
    /// `--no-preserve=mode` was given: new files get 0666 (directories and sockets 0777) less the umask
    /// instead of the source's permission bits less the umask.
    pub default_modes: bool,
    /// `--parents`: the directories named in a source are made below the destination.
    pub parents: bool,
    /// `--backup`: an existing target is renamed, not lost.
    pub backup: Option<Backup>,
    /// `-u`, `-n`: when an existing target stays as it is.
    pub update: Update,
    /// `-i`: [`Observer::overwrite`](crate::Observer::overwrite) is asked before a target is replaced.
    /// Everything is done by one worker then.
    pub interactive: bool,
    /// `-f`: a target that cannot be opened is removed, and the copy tried again.
    pub force: bool,
    /// `--remove-destination`: an existing target is removed before its source is opened.
    pub remove_destination: bool,
    /// `-l`, `-s`: links instead of copies.
    pub link: Link,
    /// `-x`: directories on other file systems are made, but what is in them stays out.
    pub one_file_system: bool,
    /// `--attributes-only`: what is preserved is set; contents are neither read nor written.
    pub attributes_only: bool,
    /// `--copy-contents`: FIFOs and devices are read like files when copying recursively.
    pub copy_contents: bool,
    /// `--strip-trailing-slashes`: `link/` names the link.
    pub strip_trailing_slashes: bool,
    /// `--keep-directory-symlink`: an existing target that is a link to a directory is used as that
    /// directory.
    pub keep_directory_symlink: bool,
    /// A target that is a link to nothing is written through, as POSIX has it (GNU: with `POSIXLY_CORRECT`).
    pub through_dangling: bool,
    /// `--sparse`: how holes and runs of zero bytes are copied.
    pub sparse: Sparse,
    /// `--reflink`: whether blocks may be, must be, or must not be shared with the source.
    pub reflink: Reflink,

    /// Excludes entries with a path below the operand that matches one of these globs, directories with all
    /// their contents. `*` does not match `/`; `**` does; a pattern without `/` matches the name at any
    /// depth. A pattern that ends in `/` matches directories only. An empty pattern is refused.
    pub exclude: Vec<String>,
    /// Continues an interrupted copy: a file is skipped if its target has the same type, size and
    /// modification time, as exactly as the target's file system keeps times, and has data wherever the
    /// source has. A target with a hole where the source has data was lost in a crash, or is sparse: it is
    /// compared byte by byte.
    ///
    /// Times are preserved, whatever [`Preserve::timestamps`] says, and are set only after the file's data is
    /// on the disk. So a file that `resume` wrote looks complete only if it is, also after a power failure.
    /// Existing files are replaced by rename, as with [`Options::atomic`].
    ///
    /// With [`Update::Older`] a file of another size is copied although its target is younger, because a torn
    /// copy is younger than its source. [`Update::None`] and [`Update::NoneFail`] would keep a torn copy, so
    /// the combination is refused.
    pub resume: bool,
    /// Replaces an existing file by renaming a finished copy over it, where nothing about the old file must
    /// stay and its name can be replaced: it has one name, no attributes, no setuid bit, no mount, and its
    /// directory is not append-only. Otherwise, and by default, it is overwritten in place, which needs no
    /// right but to open it with `O_TRUNC` and to write.
    pub atomic: bool,
    /// Compares every file with its source, byte by byte: each copy, and each file that was kept because of
    /// `resume` or `update`. The copy is written to the disk first and its cached pages are dropped, so that
    /// it is read from the disk where the file system allows that. A kept file that looks like a finished
    /// copy and differs is copied again; one that is younger than its source or kept by [`Update::None`]
    /// stays, and is an error.
    pub verify: bool,
    /// Writes the BLAKE3 hash of every regular file at the destination: of a copied file, of the bytes that
    /// were written; of a kept one, of the bytes that it has, after they were compared with the source if it
    /// looks like a finished copy (one that differs is copied again). One line `HASH  PATH` as `b3sum` does,
    /// sorted by bytes, paths relative to the destination; JSON lines when the name ends in `.ndjson`. It may
    /// be made below a source: then a file of its name that is there from before is copied as it was, and
    /// replaced when all is copied. What would be copied to its own place is an error. Where the name is a
    /// link, the list is made where that leads. A FIFO or a device is opened at once, and written to when all
    /// is copied.
    pub manifest: Option<PathBuf>,
    /// Changes nothing and reports what would be copied as [`Event::Planned`](crate::Event::Planned). Whether
    /// kept files are equal to their sources is not examined, and no manifest is written.
    pub dry_run: bool,
    /// How often an entry is tried again that failed with EIO or ESTALE, as while a file server is restarted.
    /// The pauses grow from a tenth of a second to ten seconds.
    pub retries: u32,
    /// Copies only the entries of this part, by the hashes of their paths below the operand. Directories get
    /// their attributes, and files with several names their copies, from [`Options::finish`]. Needs `resume`,
    /// so that each part can be repeated; entries of other parts are not counted.
    pub part: Option<Part>,
    /// The last pass after all parts: copies files with several names, makes empty directories, gives all
    /// directories their attributes, and checks that every other entry was copied, by the rules of `resume`.
    /// One that was not is an error. It can be repeated. The manifest has the files with several names.
    pub finish: bool,
    /// Copies what this list of the source has ([`listing::make`](crate::listing::make)), without listing its
    /// directories. With `part`, each part gets a stretch of the list with a fair share of the bytes and
    /// entries, instead of entries by hash. For one source, which is a directory.
    pub list: Option<PathBuf>,
    /// Copies the entries that a file names, with the directories on the way. A directory is copied with all
    /// that is in it. For one source, which is a directory.
    pub files_from: Option<FilesFrom>,
    /// A file that remembers which stretches of `list` are complete, so that going on passes over them
    /// without asking about their files. Needs `list` and `resume`; excludes `manifest` and `verify`, which
    /// have to read the files.
    pub journal: Option<PathBuf>,
    /// Copies only files that are not as this manifest of the destination has them. The destination's bytes
    /// are not read: a file is kept if its target has the listed size, and its source has the listed size
    /// and time, or the listed hash. A manifest that is written takes the hashes of kept files from it.
    pub update_from_manifest: Option<PathBuf>,
    /// Removes what is in the destination's directories and not in the source's, before anything is copied.
    /// Nothing is removed if some of the source could not be listed, or if more than `max_delete` entries
    /// would go. What `exclude` matches stays.
    pub delete: bool,
    /// The most entries that `delete` may remove.
    pub max_delete: Option<u64>,
    /// Bytes per second that all workers together write at most. Cloned files cost nothing.
    pub rate: Option<NonZeroU64>,
    /// Files are read and written past the page cache (`O_DIRECT`), where the file system can.
    pub direct: bool,
    /// When the copy is synced to the disk.
    pub durability: Durability,
    /// How contents are moved.
    pub engine: Engine,
    /// Workers. `None`: chosen while copying.
    pub jobs: Option<usize>,
    /// Files in flight per ring (1 to 4096; a ring's default is 64).
    pub in_flight: Option<usize>,
    /// The order in which the files of one directory are read.
    pub order: Order,
    /// Counts system calls and time per phase, for [`Report::phases`](crate::Report::phases). Costs about 1 %
    /// on small files.
    pub explain: bool,
    /// Functions of a library stand before libc's (`LD_PRELOAD`: fakeroot, pseudo, fakechroot). They do not
    /// hear of what a ring or a bare system call does, so `auto` uses no ring.
    pub interposed: bool,
}

/// A file with the names of what is copied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FilesFrom {
    /// The file; `-` is standard input.
    pub file: PathBuf,
    /// Names end in NUL, and every name is taken as it is. Otherwise they end in a line break, and empty
    /// lines and lines that begin with `#` or `;` are no names, as rsync has it.
    pub nul: bool,
}

/// Which symbolic links of the source are followed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Dereference {
    /// `-P`: none; they are copied as links.
    Never,
    /// `-H`: those given as operands.
    Operands,
    /// `-L`: all. What plain `cp` does without `-R`.
    #[default]
    Always,
}

/// Which properties the copy takes from its source, and whether failing to is an error.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Preserve {
    /// Permission bits with setuid, setgid and sticky, and access control lists.
    pub mode: bool,
    /// Owner and group. Without privilege the group may be all that can be kept; then setuid and setgid go.
    pub ownership: bool,
    /// Access and modification times, in nanoseconds.
    pub timestamps: bool,
    /// Names of one file in the source become names of one file in the target.
    pub links: bool,
    /// Extended attributes other than access control lists.
    pub xattr: Demand,
}

impl Preserve {
    /// `--preserve=all`, as `-a` means it: extended attributes as far as they go.
    pub const ALL: Preserve =
        Preserve { mode: true, ownership: true, timestamps: true, links: true, xattr: Demand::Try };
    /// `-p`: mode, ownership, timestamps.
    pub const DEFAULT: Preserve =
        Preserve { mode: true, ownership: true, timestamps: true, links: false, xattr: Demand::No };
}

/// How strictly a property is preserved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Demand {
    /// Not at all.
    #[default]
    No,
    /// Where possible, without an error.
    Try,
    /// Where possible; what fails is a warning, but not where the target has no such property.
    Warn,
    /// A failure is an error.
    Must,
}

/// How a replaced target is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Backup {
    /// How the name is made.
    pub kind: BackupKind,
    /// `.~`.
    pub suffix: std::ffi::OsString,
}

/// How a backup's name is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BackupKind {
    /// `name` + suffix, replacing an earlier one.
    Simple,
    /// `name.~N~`, with N one more than the highest there is.
    Numbered,
    /// Numbered where numbered ones exist, else simple.
    Existing,
}

/// When an existing target stays as it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Update {
    /// `--update=all`: never.
    #[default]
    All,
    /// `--update=older`, `-u`: unless its modification time is older than the source's.
    Older,
    /// `--update=none`, `-n`: always, without an error.
    None,
    /// `--update=none-fail`: always, and each is an error.
    NoneFail,
}

/// Links instead of copies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Link {
    /// Copies.
    #[default]
    No,
    /// `-l`: hard links.
    Hard,
    /// `-s`: symbolic links.
    Symbolic,
}

/// How holes and runs of zeros are copied.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sparse {
    /// Holes of the source stay holes.
    #[default]
    Auto,
    /// Every run of zero bytes of 4096 and more, aligned, becomes a hole.
    Always,
    /// The copy has no holes.
    Never,
}

/// Whether blocks are shared with the source.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reflink {
    /// Where the file system can.
    #[default]
    Auto,
    /// Or it is an error.
    Always,
    /// Never: the bytes are moved.
    Never,
}

/// When the copy is synced to the disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Durability {
    /// When the kernel decides. As `cp`.
    #[default]
    None,
    /// When the copy returns: one `syncfs` for each file system written to.
    End,
    /// File by file: `fsync` before the file's times are set, so that what a later resume takes for whole is
    /// whole, even after a power cut.
    File,
}

/// How contents are moved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Engine {
    /// By file system, by what the kernel allows, and by what is measured while copying.
    #[default]
    Auto,
    /// Plain system calls on some threads.
    Threads,
    /// A ring per worker opens and reads many sources ahead; the worker creates and writes by plain calls.
    Ring,
    /// A ring per worker does everything, and contents move through pipes: many files in flight, each a state
    /// machine. The design of uring-sync.
    RingSplice,
}

impl Engine {
    /// Returns the name used on command lines and in reports.
    pub fn name(self) -> &'static str {
        match self {
            Engine::Auto => "auto",
            Engine::Threads => "threads",
            Engine::Ring => "ring",
            Engine::RingSplice => "ring-splice",
        }
    }
}

/// In which order the files of one directory are read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    /// By inode number within windows of 65536 entries: near the order on a disk that has one. Directories
    /// are dealt to as many stretches of it as there are workers.
    #[default]
    Inode,
    /// As the directory lists them.
    Directory,
}

/// Where operands go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Destination {
    /// Below this existing directory, each under its last component (with [`Options::parents`]: under its
    /// whole path).
    Into(PathBuf),
    /// To exactly this name. For one operand.
    At(PathBuf),
}
