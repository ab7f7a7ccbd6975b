//! Errors as data: the kind, the path, the other path, and the system's error.
//!
//! `Display` gives the house form (`create, on b/x: Permission denied`). A program with GNU `cp`'s messages
//! forms its sentence from the kind; the documentation of each kind has that sentence.

use rustix::io::Errno;
use std::fmt;
use std::io;
use std::path::PathBuf;

/// An error on one path.
#[derive(Debug)]
pub struct Error {
    /// What was attempted, or what is wrong.
    pub kind: ErrorKind,
    /// The path as the user would write it, beginning with the operand.
    pub path: PathBuf,
    /// The path of the other side, if the kind has one.
    pub other: Option<PathBuf>,
    /// The system's error, if there is one.
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
    /// `cannot create symbolic link 'P' to 'O': E` (O is what `-s` was to link to; a link that is copied has
    /// none)
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
    /// A warning: the same, where attributes are copied as far as they go
    /// ([`Demand::Warn`](crate::Demand::Warn)).
    LeftXattr,
    /// A warning: the table of attributes that are not copied could not be used, so all were copied.
    AttributeRules,
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
    /// A warning: the source changed while it was read, so the copy may hold parts of both states. GNU does
    /// not look.
    Changed,
    /// The source changed while it was copied and compared, so the copy could not be verified. It was kept.
    Unverified,
    /// What was written to a terminal, a pipe or another device that is no disk cannot be read back to be
    /// verified.
    NotReadBack,
    /// The target was kept as it is, and differs from its source. P is the target, O the source.
    KeptDiffers,
    /// The copy, read again, is not what its source is. P is the target, O the source.
    Mismatch,
    /// The manifest could not be written.
    Manifest,
    /// A list (of `list`, `files_from` or `update_from_manifest`) could not be read.
    List,
    /// The journal could not be read or written.
    Journal,
    /// More would be removed than `max_delete` allows, so nothing was. P is the destination.
    TooManyToDelete,
    /// Some of the source or the destination could not be listed, so nothing was removed. P is the
    /// destination.
    NotDeleted,
    /// What is mounted at the destination is not removed.
    Mounted,
    /// The manifest will be where this would be copied to. P is the target, O the source.
    OntoManifest,
    /// No part has copied it, or it changed since. P is the target, O the source.
    LeftByParts,
    /// A source of an unknown type: `'P' has unknown file type`
    UnknownType,
    /// `with --parents, the destination must be a directory`, or a parent of O could not be made. P is it.
    Parent,
}

impl ErrorKind {
    /// Returns the operation in the words of an error message.
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
            PreserveXattr | LeftXattr => "set extended attributes",
            AttributeRules => "read the rules for extended attributes (none is applied)",
            OmittedDirectory | SameFile | IntoItself | CyclicLink | DirectoryByOther | OtherByDirectory
            | JustCreated | ThroughJustCreated | SourceTwice | DirectoryTwice | NotReplacing
            | DanglingTarget | HardLinkToDirectory | RelativeSymlink | Replaced | Changed | OntoManifest
            | LeftByParts | UnknownType => "copy",
            Mismatch | Unverified | NotReadBack | KeptDiffers => "verify",
            Manifest => "write manifest",
            List => "read list",
            Journal => "journal",
            TooManyToDelete | NotDeleted | Mounted => "delete",
            Parent => "make parent directory",
        }
    }

    /// Returns the reason if there is no system error.
    pub fn why(self) -> Option<&'static str> {
        use ErrorKind::*;
        Some(match self {
            BackupDestroysSource => "the backup would destroy the source",
            OmittedDirectory => "a directory, and copying is not recursive (-r copies directories)",
            SameFile => "source and target are the same file",
            IntoItself => "a directory cannot be copied into itself",
            CyclicLink => "the link leads to one of its own parent directories",
            DirectoryByOther => "a directory is not overwritten by something else",
            OtherByDirectory => "a non-directory is not overwritten by a directory",
            JustCreated => "this copy created it from another source",
            ThroughJustCreated => "this copy created the link, and does not write through it",
            SourceTwice | DirectoryTwice => "given more than once; copied once",
            NotReplacing => "it exists and must not be replaced",
            DanglingTarget => "the target is a dangling link, and is not written through",
            HardLinkToDirectory => "a directory cannot be hard-linked",
            RelativeSymlink => "a relative link can be made only in the current directory",
            Replaced => "it was replaced by something else while being copied",
            Changed => "it changed while it was copied, so the copy may hold parts of both states",
            Unverified => {
                "it changed while it was copied, so the copy was kept but not verified (copy it again when no \
                 program writes to it)"
            }
            NotReadBack => {
                "what was written to it cannot be read back, because it is no file or disk (leave --verify out)"
            }
            KeptDiffers => "it was kept as it is, and differs from its source",
            Mismatch => "the copy differs from its source",
            OntoManifest => "the manifest will be written there (give one of the two another name)",
            LeftByParts => {
                "no part has copied it, or it changed since then (repeat the parts, those with a journal without \
                 it, then --finish)"
            }
            TooManyToDelete => "more would be removed than --max-delete allows, so nothing was",
            NotDeleted => "some directories could not be listed, so nothing was removed",
            Mounted => {
                "a file system is mounted there, so it stays with all that is in it (unmount it, or --exclude it)"
            }
            UnknownType => "its file type is unknown",
            _ => return None,
        })
    }
}

impl Error {
    /// Returns an error without a system error.
    pub(crate) fn plain(kind: ErrorKind, path: PathBuf) -> Error {
        Error { kind, path, other: None, source: None }
    }

    /// Returns the error of a failed system call.
    pub(crate) fn system(kind: ErrorKind, path: PathBuf, why: Errno) -> Error {
        Error { kind, path, other: None, source: Some(why.into()) }
    }

    /// Adds the path of the other side.
    pub(crate) fn with(mut self, other: PathBuf) -> Error {
        self.other = Some(other);
        self
    }

    /// Returns whether the destination has no room left (ENOSPC, EDQUOT) for what was to be made or written.
    /// An attribute may be too large, an owner's quota used up, or a manifest on another file system, where
    /// there is room for all the rest.
    pub fn is_full(&self) -> bool {
        self.makes() && (self.is(Errno::NOSPC) || self.is(Errno::DQUOT))
    }

    /// Returns whether something was to be made or written.
    pub(crate) fn makes(&self) -> bool {
        use ErrorKind::*;
        matches!(
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
        )
    }

    /// Returns whether the system's error has this errno.
    pub(crate) fn is(&self, why: Errno) -> bool {
        self.source.as_ref().and_then(io::Error::raw_os_error) == Some(why.raw_os_error())
    }

    /// Returns whether this is only a warning, which does not affect success.
    pub fn is_warning(&self) -> bool {
        use ErrorKind::{AttributeRules, Changed, DirectoryTwice, LeftXattr, SourceTwice};
        matches!(self.kind, SourceTwice | DirectoryTwice | Changed | AttributeRules | LeftXattr)
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

/// The reason why a copy did not begin. Nothing was changed.
#[derive(Debug)]
#[non_exhaustive]
pub enum Refusal {
    /// The named engine cannot be used here.
    Engine {
        /// The engine.
        engine: crate::Engine,
        /// The reason, and a hint.
        why: String,
    },
    /// Options that contradict each other or are out of range.
    Options(String),
    /// The manifest file could not be created.
    Manifest(PathBuf, io::Error),
    /// A list could not be read, or not be made.
    List(crate::lists::ListError),
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refusal::Engine { engine, why } => write!(f, "engine {}: {why}", engine.name()),
            Refusal::Options(why) => f.write_str(why),
            Refusal::Manifest(path, why) => write!(f, "create manifest, on {}: {why}", path.display()),
            Refusal::List(why) => why.fmt(f),
        }
    }
}

impl std::error::Error for Refusal {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Refusal::Manifest(_, why) => Some(why),
            Refusal::List(why) => Some(why),
            _ => None,
        }
    }
}
