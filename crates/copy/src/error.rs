//! What can go wrong, as data: the kind, the path, the other path, and what the system said.
//!
//! `Display` gives the house form (`create, on b/x: Permission denied`). A program that speaks as GNU `cp` does
//! forms its own sentence from the kind; each kind's documentation has that sentence.

use rustix::io::Errno;
use std::fmt;
use std::io;
use std::path::PathBuf;

/// Something that did not work, on one path.
#[derive(Debug)]
pub struct Error {
    /// What was attempted, or what is wrong.
    pub kind: ErrorKind,
    /// On what: as the user would name it, operands first.
    pub path: PathBuf,
    /// The other side, where the kind has one.
    pub other: Option<PathBuf>,
    /// What the system said, where it said something.
    pub source: Option<io::Error>,
}

/// What was attempted, or what is wrong. In the sentences of GNU `cp`, P is [`Error::path`], O is
/// [`Error::other`], E the text of [`Error::source`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// `cannot stat 'P': E`
    Stat,
    /// `cannot access 'P': E`: a directory that cannot be opened for listing.
    Access,
    /// `error reading directory 'P': E`, after some of it was listed.
    ReadDirectory,
    /// `cannot open 'P' for reading: E`
    OpenSource,
    /// `error reading 'P': E`
    Read,
    /// `cannot read symbolic link 'P': E`
    ReadLink,
    /// `cannot create regular file 'P': E`
    Create,
    /// `cannot create directory 'P': E`
    CreateDirectory,
    /// `cannot create symbolic link 'P' to 'O': E` (O is what `-s` was to link to; a link that is copied has none)
    CreateSymlink,
    /// `cannot create hard link 'P' to 'O': E`
    CreateHardLink,
    /// `cannot create fifo 'P': E`
    CreateFifo,
    /// `cannot create special file 'P': E`: sockets and devices.
    CreateSpecial,
    /// `error writing 'P': E`. A full destination is this kind, with ENOSPC or EDQUOT; see
    /// [`Error::is_full`].
    Write,
    /// `failed to extend 'P': E`: setting the size failed.
    Extend,
    /// `failed to clone 'P' from 'O': E`
    Clone,
    /// `failed to close 'P': E`
    Close,
    /// `fsync 'P': E`. What was written may be lost; the target was removed.
    Sync,
    /// `cannot remove 'P': E`
    Remove,
    /// `cannot backup 'P': E`
    Backup,
    /// `backing up 'P' might destroy source;  'O' not copied`
    BackupDestroysSource,
    /// `cannot rename 'O' to 'P': E`: moving the finished copy into its place. GNU has no such step.
    Rename,
    /// `failed to preserve ownership for 'P': E`
    PreserveOwnership,
    /// `preserving permissions for 'P': E`
    PreserveMode,
    /// `preserving times for 'P': E`
    PreserveTimes,
    /// `setting attributes for 'P': E` (P is the target)
    PreserveXattr,
    /// `setting permissions for 'P': E`: access control lists among them.
    SetMode,
    /// `-r not specified; omitting directory 'P'`
    OmittedDirectory,
    /// `'P' and 'O' are the same file`
    SameFile,
    /// `cannot copy a directory, 'P', into itself, 'O'`
    IntoItself,
    /// `cannot copy cyclic symbolic link 'P'`
    CyclicLink,
    /// `cannot overwrite directory 'P' with non-directory 'O'`
    DirectoryByOther,
    /// `cannot overwrite non-directory 'P' with directory 'O'`
    OtherByDirectory,
    /// `will not overwrite just-created 'P' with 'O'`
    JustCreated,
    /// `will not copy 'O' through just-created symlink 'P'`
    ThroughJustCreated,
    /// A warning, exit 0: `source file 'P' specified more than once`
    SourceTwice,
    /// A warning, exit 0: `source directory 'P' specified more than once`
    DirectoryTwice,
    /// `not replacing 'P'`: [`Update::NoneFail`](crate::Update::NoneFail).
    NotReplacing,
    /// `not writing through dangling symlink 'P'`
    DanglingTarget,
    /// `will not create hard link 'P' to directory 'O'`
    HardLinkToDirectory,
    /// `'P': can make relative symbolic links only in current directory`
    RelativeSymlink,
    /// `skipping file 'P', as it was replaced while being copied`
    Replaced,
    /// The source changed while it was read, twice. GNU does not look. `'P' changed while being copied`
    Changed,
    /// The copy, read again, is not what its source is. P is the target, O the source.
    Mismatch,
    /// The manifest could not be written.
    Manifest,
    /// The manifest will be where this would be copied to. P is the target, O the source.
    OntoManifest,
    /// A source of an unknown type: `'P' has unknown file type`
    UnknownType,
    /// `with --parents, the destination must be a directory`, or a parent of O could not be made. P is it.
    Parent,
}

impl ErrorKind {
    /// The operation, in the words of an error line.
    pub fn what(self) -> &'static str {
        use ErrorKind::*;
        match self {
            Stat => "stat",
            Access => "open directory",
            ReadDirectory => "read directory",
            OpenSource => "open",
            Read => "read",
            ReadLink => "read link",
            Create => "create",
            CreateDirectory => "create directory",
            CreateSymlink => "create symbolic link",
            CreateHardLink => "create hard link",
            CreateFifo => "create fifo",
            CreateSpecial => "create special file",
            Write => "write",
            Extend => "set size",
            Clone => "clone",
            Close => "close",
            Sync => "sync",
            Remove => "remove",
            Backup | BackupDestroysSource => "back up",
            Rename => "rename",
            PreserveOwnership => "set owner",
            PreserveMode | SetMode => "set mode",
            PreserveTimes => "set times",
            PreserveXattr => "set extended attributes",
            OmittedDirectory | SameFile | IntoItself | CyclicLink | DirectoryByOther | OtherByDirectory
            | JustCreated | ThroughJustCreated | SourceTwice | DirectoryTwice | NotReplacing
            | DanglingTarget | HardLinkToDirectory | RelativeSymlink | Replaced | Changed | OntoManifest
            | UnknownType => "copy",
            Mismatch => "verify",
            Manifest => "write manifest",
            Parent => "make parent directory",
        }
    }

    /// Why, where the system said nothing: the kind itself is the reason.
    pub fn why(self) -> Option<&'static str> {
        use ErrorKind::*;
        Some(match self {
            BackupDestroysSource => "the backup would destroy the source",
            OmittedDirectory => "a directory, and copying is not recursive (-r copies directories)",
            SameFile => "source and target are the same file",
            IntoItself => "a directory cannot be copied into itself",
            CyclicLink => "the link leads to a directory above it",
            DirectoryByOther => "a directory is not overwritten by something else",
            OtherByDirectory => "something that is no directory is not overwritten by one",
            JustCreated => "it was made by this very copy, from another source",
            ThroughJustCreated => "it is a link made by this very copy, and is not written through",
            SourceTwice | DirectoryTwice => "given more than once; copied once",
            NotReplacing => "it exists, and was not to be replaced",
            DanglingTarget => "the target is a link to nothing, and is not written through",
            HardLinkToDirectory => "a directory cannot be hard-linked",
            RelativeSymlink => "a relative link can be made only in the current directory",
            Replaced => "it was replaced by something else while being copied",
            Changed => "it changed while being copied, twice (copy it when its writer is done)",
            Mismatch => "the copy differs from its source",
            OntoManifest => "the manifest will be written there (give one of the two another name)",
            UnknownType => "its file type is unknown",
            _ => return None,
        })
    }
}

impl Error {
    /// The kind says it all.
    pub(crate) fn plain(kind: ErrorKind, path: PathBuf) -> Error {
        Error { kind, path, other: None, source: None }
    }

    /// A system call failed.
    pub(crate) fn system(kind: ErrorKind, path: PathBuf, why: Errno) -> Error {
        Error { kind, path, other: None, source: Some(why.into()) }
    }

    /// With the other side.
    pub(crate) fn with(mut self, other: PathBuf) -> Error {
        self.other = Some(other);
        self
    }

    /// Whether the destination has no room left (ENOSPC, EDQUOT) for what was to be made or written. An attribute may be
    /// too large, an owner's quota used up, or a manifest on another file system, where there is room for all the rest.
    pub fn is_full(&self) -> bool {
        use ErrorKind::*;
        let makes = matches!(
            self.kind,
            Create
                | CreateDirectory
                | CreateSymlink
                | CreateHardLink
                | CreateFifo
                | CreateSpecial
                | Write
                | Extend
                | Clone
                | Close
                | Sync
                | Rename
                | Parent
        );
        makes && (self.is(Errno::NOSPC) || self.is(Errno::DQUOT))
    }

    /// Whether the kernel gave this reason.
    pub(crate) fn is(&self, why: Errno) -> bool {
        self.source.as_ref().and_then(io::Error::raw_os_error) == Some(why.raw_os_error())
    }

    /// Whether this is only worth a word: the copy is as successful as without it.
    pub fn is_warning(&self) -> bool {
        matches!(self.kind, ErrorKind::SourceTwice | ErrorKind::DirectoryTwice)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, on {}", self.kind.what(), self.path.display())?;
        if let Some(other) = &self.other {
            write!(f, " (with {})", other.display())?;
        }
        if let Some(why) = self.kind.why() {
            write!(f, ": {why}")?;
        }
        if let Some(source) = &self.source {
            write!(f, ": {source}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.source.as_ref().map(|source| source as _)
    }
}

/// Why a copy did not begin. Nothing was touched.
#[derive(Debug)]
#[non_exhaustive]
pub enum Refusal {
    /// The engine asked for by name is not usable here.
    Engine {
        /// Which.
        engine: crate::Engine,
        /// Why, and what would help.
        why: String,
    },
    /// Options that contradict each other or are out of range.
    Options(String),
    /// The manifest's file could not be made.
    Manifest(PathBuf, io::Error),
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refusal::Engine { engine, why } => write!(f, "engine {}: {why}", engine.name()),
            Refusal::Options(why) => f.write_str(why),
            Refusal::Manifest(path, why) => write!(f, "create manifest, on {}: {why}", path.display()),
        }
    }
}

impl std::error::Error for Refusal {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Refusal::Manifest(_, why) => Some(why),
            _ => None,
        }
    }
}
