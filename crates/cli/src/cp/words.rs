//! What the line may say: every option with its letter and its long name, and the words that choices have.
//!
//! What each of them means is `options`. Start at [`GNU`] and [`EXTRA`].

use super::getopt::{Known, Takes};
use Takes::{Maybe, Nothing, Value};
use ringroad_copy::{BackupKind, Durability, Engine, Order, Reflink, Sparse, Update};

/// Every option; its meaning is in `options::Line::take`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Id {
    Archive,
    AttributesOnly,
    Backup,
    BackupPlain,
    CopyContents,
    Debug,
    Dereference,
    LinksAsThey,
    Force,
    OperandLinks,
    Interactive,
    KeepDirectorySymlink,
    HardLink,
    NoClobber,
    NoDereference,
    NoPreserve,
    NoTargetDirectory,
    OneFileSystem,
    Parents,
    Preserve,
    PreserveDefault,
    Recursive,
    RemoveDestination,
    Sparse,
    Reflink,
    Strip,
    Suffix,
    SymbolicLink,
    TargetDirectory,
    Update,
    Verbose,
    Context,
    Help,
    Version,
    // Beyond GNU's.
    Resume,
    Atomic,
    DryRun,
    Verify,
    Manifest,
    Exclude,
    Retries,
    Part,
    Parts,
    Finish,
    MakeList,
    List,
    Journal,
    FilesFrom,
    FromZero,
    UpdateFromManifest,
    Delete,
    MaxDelete,
    Rate,
    Engine,
    Driver,
    Jobs,
    InFlight,
    Order,
    Direct,
    Durability,
    Explain,
    Json,
    Quiet,
}

const fn known(long: &'static str, short: Option<u8>, takes: Takes, id: Id) -> Known<Id> {
    Known { long, short, takes, id }
}

/// GNU's options, in its order, which is the order of the names in "ambiguous" messages. An empty long name
/// is never matched: those are letters only.
pub(super) const GNU: &[Known<Id>] = &[
    known("archive", Some(b'a'), Nothing, Id::Archive),
    known("attributes-only", None, Nothing, Id::AttributesOnly),
    known("backup", None, Maybe, Id::Backup),
    known("copy-contents", None, Nothing, Id::CopyContents),
    known("debug", None, Nothing, Id::Debug),
    known("dereference", Some(b'L'), Nothing, Id::Dereference),
    known("force", Some(b'f'), Nothing, Id::Force),
    known("interactive", Some(b'i'), Nothing, Id::Interactive),
    known("keep-directory-symlink", None, Nothing, Id::KeepDirectorySymlink),
    known("link", Some(b'l'), Nothing, Id::HardLink),
    known("no-clobber", Some(b'n'), Nothing, Id::NoClobber),
    known("no-dereference", Some(b'P'), Nothing, Id::NoDereference),
    known("no-preserve", None, Value, Id::NoPreserve),
    known("no-target-directory", Some(b'T'), Nothing, Id::NoTargetDirectory),
    known("one-file-system", Some(b'x'), Nothing, Id::OneFileSystem),
    known("parents", None, Nothing, Id::Parents),
    known("path", None, Nothing, Id::Parents),
    known("preserve", None, Maybe, Id::Preserve),
    known("recursive", Some(b'R'), Nothing, Id::Recursive),
    known("remove-destination", None, Nothing, Id::RemoveDestination),
    known("sparse", None, Value, Id::Sparse),
    known("reflink", None, Maybe, Id::Reflink),
    known("strip-trailing-slashes", None, Nothing, Id::Strip),
    known("suffix", Some(b'S'), Value, Id::Suffix),
    known("symbolic-link", Some(b's'), Nothing, Id::SymbolicLink),
    known("target-directory", Some(b't'), Value, Id::TargetDirectory),
    known("update", None, Maybe, Id::Update),
    known("verbose", Some(b'v'), Nothing, Id::Verbose),
    known("context", None, Maybe, Id::Context),
    known("help", None, Nothing, Id::Help),
    known("version", None, Nothing, Id::Version),
];

/// Letters of GNU's that have no long name of their own, and our options.
pub(super) const EXTRA: &[Known<Id>] = &[
    known("\0b", Some(b'b'), Nothing, Id::BackupPlain),
    known("\0d", Some(b'd'), Nothing, Id::LinksAsThey),
    known("\0H", Some(b'H'), Nothing, Id::OperandLinks),
    known("\0p", Some(b'p'), Nothing, Id::PreserveDefault),
    known("\0r", Some(b'r'), Nothing, Id::Recursive),
    known("\0u", Some(b'u'), Nothing, Id::Update),
    known("\0Z", Some(b'Z'), Nothing, Id::Context),
    known("resume", None, Nothing, Id::Resume),
    known("atomic", None, Nothing, Id::Atomic),
    known("dry-run", None, Nothing, Id::DryRun),
    known("verify", None, Nothing, Id::Verify),
    known("manifest", None, Value, Id::Manifest),
    known("exclude", None, Value, Id::Exclude),
    known("retries", None, Value, Id::Retries),
    known("part", None, Value, Id::Part),
    known("parts", None, Value, Id::Parts),
    known("finish", None, Nothing, Id::Finish),
    known("make-list", None, Value, Id::MakeList),
    known("list", None, Value, Id::List),
    known("journal", None, Value, Id::Journal),
    known("files-from", None, Value, Id::FilesFrom),
    known("from0", Some(b'0'), Nothing, Id::FromZero),
    known("update-from-manifest", None, Value, Id::UpdateFromManifest),
    known("delete", None, Nothing, Id::Delete),
    known("max-delete", None, Value, Id::MaxDelete),
    known("rate", None, Value, Id::Rate),
    known("engine", None, Value, Id::Engine),
    known("driver", None, Value, Id::Driver),
    known("jobs", None, Value, Id::Jobs),
    known("in-flight", None, Value, Id::InFlight),
    known("order", None, Value, Id::Order),
    known("direct", None, Nothing, Id::Direct),
    known("durability", None, Value, Id::Durability),
    known("explain", None, Nothing, Id::Explain),
    known("json", None, Nothing, Id::Json),
    known("quiet", None, Nothing, Id::Quiet),
];

/// A choice by name; names beside each other mean the same.
pub(super) type Choices<T> = &'static [(&'static [&'static str], T)];

pub(super) const BACKUPS: Choices<Option<BackupKind>> = &[
    (&["none", "off"], None),
    (&["simple", "never"], Some(BackupKind::Simple)),
    (&["existing", "nil"], Some(BackupKind::Existing)),
    (&["numbered", "t"], Some(BackupKind::Numbered)),
];
pub(super) const SPARSE: Choices<Sparse> =
    &[(&["never"], Sparse::Never), (&["auto"], Sparse::Auto), (&["always"], Sparse::Always)];
pub(super) const REFLINK: Choices<Reflink> =
    &[(&["auto"], Reflink::Auto), (&["always"], Reflink::Always), (&["never"], Reflink::Never)];
pub(super) const UPDATE: Choices<Update> = &[
    (&["all"], Update::All),
    (&["none"], Update::None),
    (&["none-fail"], Update::NoneFail),
    (&["older"], Update::Older),
];
pub(super) const PROPERTIES: Choices<Property> = &[
    (&["mode"], Property::Mode),
    (&["timestamps"], Property::Timestamps),
    (&["ownership"], Property::Ownership),
    (&["links"], Property::Links),
    (&["context"], Property::Context),
    (&["xattr"], Property::Xattr),
    (&["all"], Property::All),
];
pub(super) const ENGINES: Choices<Engine> = &[
    (&["auto"], Engine::Auto),
    (&["threads"], Engine::Threads),
    (&["ring"], Engine::Ring),
    (&["ring-splice"], Engine::RingSplice),
];
pub(super) const DRIVERS: Choices<Engine> =
    &[(&["auto"], Engine::Auto), (&["io_uring", "uring"], Engine::Ring), (&["threads"], Engine::Threads)];
pub(super) const ORDERS: Choices<Order> = &[(&["inode"], Order::Inode), (&["dir"], Order::Directory)];
pub(super) const DURABILITIES: Choices<Durability> =
    &[(&["none"], Durability::None), (&["end"], Durability::End), (&["file"], Durability::File)];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Property {
    Mode,
    Timestamps,
    Ownership,
    Links,
    Context,
    Xattr,
    All,
}
