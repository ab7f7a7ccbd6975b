//! Certificates with their keys, from files and folders, and facts about them.
//!
//! Places are checked repeatedly. A pair is read again only if its files have changed. A pair that cannot be
//! used is reported with its file and the reason, and the previous pair stays in use.

use crate::error::TlsError;
use crate::names::Names;
use ringroad_host::input;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;
use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// A place that certificates come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// A chain and its key, in PEM. Both may be the same file.
    Pair(PairFiles),
    /// A folder. In it: `NAME.pem` (or `.crt`, `.cer`) with `NAME.key`, or with the key in the same file; and
    /// folders with `fullchain.pem` and `privkey.pem`, as ACME clients leave them. It may be such a folder.
    Folder(PathBuf),
}

/// The files of a pair.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PairFiles {
    /// The chain, the server's own certificate first.
    pub certificate: PathBuf,
    /// The private key.
    pub key: PathBuf,
}

/// A certificate's chain and key in memory.
pub struct Pair {
    /// The chain.
    pub chain: Vec<CertificateDer<'static>>,
    /// The key.
    pub key: PrivateKeyDer<'static>,
}

/// Facts about a certificate in use.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CertificateInfo {
    /// Its first name, or its file where it has none.
    pub name: String,
    /// The file it came from; `None` if it was given in memory.
    pub file: Option<PathBuf>,
    /// All its names.
    pub names: Arc<Names>,
    /// End of its validity.
    pub expires: SystemTime,
}

impl CertificateInfo {
    /// Returns the seconds until it expires; negative after that.
    pub fn seconds_left(&self, now: SystemTime) -> i64 {
        let seconds = |time: Duration| i64::try_from(time.as_secs()).unwrap_or(i64::MAX);
        match self.expires.duration_since(now) {
            Ok(left) => seconds(left),
            Err(over) => -seconds(over.duration()),
        }
    }
}

/// A pair that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadPair {
    /// The file.
    pub file: PathBuf,
    /// The reason.
    pub why: String,
}

impl fmt::Display for BadPair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "certificate, on {}: {}", self.file.display(), self.why)
    }
}

impl std::error::Error for BadPair {}

/// A pair that can be used.
pub(crate) struct Usable {
    pub(crate) info: CertificateInfo,
    pub(crate) key: Arc<CertifiedKey>,
}

/// Most bytes of a chain: clients that are built on OpenSSL accept 100 KiB, rustls 64.
const CHAIN_BYTES_MAX: usize = 60 * 1024;

/// Returns what is wrong with a PEM text. The library prints the missing marker as a list of numbers.
pub(crate) fn pem_words(why: &pem::Error) -> String {
    match why {
        pem::Error::MissingSectionEnd { .. } => {
            "a part of it has no end: perhaps it is still being written".to_owned()
        }
        pem::Error::IllegalSectionStart { .. } => "a line with -----BEGIN is wrong".to_owned(),
        pem::Error::NoItemsFound => "none was found".to_owned(),
        other => other.to_string(),
    }
}

/// Returns the certificates of a PEM file's content, at least one.
///
/// # Errors
/// There is none, or one cannot be read.
pub fn certificates_from_pem(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let read = CertificateDer::pem_slice_iter(pem).collect::<Result<Vec<_>, _>>();
    let all = read
        .map_err(|why| TlsError::settings(format!("a certificate cannot be read ({})", pem_words(&why))))?;
    if all.is_empty() {
        return Err(TlsError::settings("expected certificates in PEM, found none"));
    }
    Ok(all)
}

/// Makes a pair usable.
pub(crate) fn usable(pair: Pair, file: Option<&Path>) -> Result<Usable, String> {
    let Some(first) = pair.chain.first() else { return Err("there is no certificate in it".to_owned()) };
    let bytes: usize = pair.chain.iter().map(|certificate| certificate.len()).sum();
    if bytes > CHAIN_BYTES_MAX {
        let count = pair.chain.len();
        return Err(format!(
            "a chain of {count} certificates with {bytes} bytes is longer than clients accept"
        ));
    }
    let (names, expires, begins) = {
        let (_, parsed) = x509_parser::parse_x509_certificate(first)
            .map_err(|why| format!("the certificate cannot be read ({why})"))?;
        let validity = parsed.validity();
        (Names::of(&parsed), time(validity.not_after.timestamp()), time(validity.not_before.timestamp()))
    };
    let key = CertifiedKey::from_der(pair.chain, pair.key, &crate::provider()).map_err(|why| match why {
        rustls::Error::InconsistentKeys(_) => "the key is not that of the certificate".to_owned(),
        why => format!("the key or the certificate cannot be used ({why})"),
    })?;
    let shown = |file: &Path| file.display().to_string();
    let name = names.first().or_else(|| file.map(shown)).unwrap_or_else(|| "(no name)".to_owned());
    let info = CertificateInfo { name, file: file.map(Path::to_owned), names: Arc::new(names), expires };
    // A local clock that is up to a day behind is no reason to refuse.
    if begins > SystemTime::now() + Duration::from_secs(24 * 60 * 60) {
        return Err("the certificate is not valid yet".to_owned());
    }
    Ok(Usable { info, key: Arc::new(key) })
}

/// Returns the key that answers a challenge. Its certificate has a critical extension that a verifier of
/// ordinary certificates does not know, so the key is not compared with it.
pub(crate) fn challenge_key(pair: Pair) -> Result<CertifiedKey, String> {
    let key = crate::provider().key_provider.load_private_key(pair.key).map_err(|why| why.to_string())?;
    Ok(CertifiedKey::new(pair.chain, key))
}

pub(crate) fn time(timestamp: i64) -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(u64::try_from(timestamp).unwrap_or(0))
}

/// State of a file when it was read.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Stamp {
    device: u64,
    inode: u64,
    bytes: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

fn stamp(file: &Path) -> io::Result<Stamp> {
    let of = fs::metadata(file)?;
    Ok(Stamp {
        device: of.dev(),
        inode: of.ino(),
        bytes: of.len(),
        modified: (of.mtime(), of.mtime_nsec()),
        changed: (of.ctime(), of.ctime_nsec()),
    })
}

/// The pairs of some places, as they were last read.
#[derive(Default)]
pub(crate) struct Store {
    places: Vec<Place>,
    known: BTreeMap<PairFiles, Known>,
    /// Reports already made, so that the same is not reported every ten seconds: errors of folders, and
    /// certificates without a key.
    folders: BTreeMap<PathBuf, String>,
    /// Whether the loss of the last pair was reported.
    bare: bool,
}

#[derive(Clone)]
struct Known {
    stamps: Option<(Stamp, Stamp)>,
    usable: Option<Arc<Usable>>,
    /// The reason why the present contents of the files are not used.
    bad: Option<String>,
}

/// Result of a check of the places.
pub(crate) struct Looked {
    /// Whether the set of usable pairs has changed.
    pub(crate) changed: bool,
    /// Pairs that have become unusable.
    pub(crate) bad: Vec<BadPair>,
}

impl Store {
    /// Makes a store that has not checked its places yet. It takes over what `before` had read of the same
    /// files, so a pair that has become bad stays as it was.
    pub(crate) fn new(places: Vec<Place>, before: Option<&Store>) -> Store {
        let known = before.map(|before| before.known.clone()).unwrap_or_default();
        Store { places, known, ..Store::default() }
    }

    /// Returns the pairs that can be used, those of the first place first.
    pub(crate) fn usable(&self) -> Vec<Arc<Usable>> {
        let mut all = Vec::new();
        for place in &self.places {
            match place {
                Place::Pair(files) => {
                    all.extend(self.known.get(files).and_then(|known| known.usable.clone()))
                }
                Place::Folder(folder) => {
                    let below = self.known.iter().filter(|(files, _)| files.certificate.starts_with(folder));
                    all.extend(below.filter_map(|(_, known)| known.usable.clone()));
                }
            }
        }
        all
    }

    /// Checks every place, and reads the files that have changed. `needed`: there are no other pairs than
    /// these, so the last usable pair stays, whatever has happened to its files.
    pub(crate) fn look(&mut self, now: SystemTime, needed: bool) -> Looked {
        let before_all = self.known.clone();
        let mut looked = Looked { changed: false, bad: Vec::new() };
        let mut there = Vec::new();
        for place in &self.places {
            match place {
                Place::Pair(files) => there.push(files.clone()),
                Place::Folder(folder) => match pairs_in(folder) {
                    Ok((pairs, alone)) => {
                        let stays = |path: &Path| match path.parent() == Some(folder.as_path()) {
                            true => alone.iter().any(|file| file == path),
                            false => path != folder,
                        };
                        self.folders.retain(|path, _| stays(path));
                        let is_half = |file: &PathBuf| self.known.keys().any(|of| of.certificate == *file);
                        for file in alone.into_iter().filter(|file| !is_half(file)) {
                            let why = "there is no key beside it, nor in it".to_owned();
                            if self.folders.insert(file.clone(), why.clone()).is_none() {
                                looked.bad.push(BadPair { file, why });
                            }
                        }
                        // A pair of which one file is still present was not removed.
                        let halves = self.known.keys().filter(|files| {
                            let is_found = |found: &PairFiles| found.certificate == files.certificate;
                            files.certificate.starts_with(folder)
                                && files.certificate.symlink_metadata().is_ok()
                                && !pairs.iter().any(is_found)
                        });
                        there.extend(halves.cloned());
                        there.extend(pairs);
                    }
                    Err(why) => {
                        let why = why.to_string();
                        if self.folders.get(folder) != Some(&why) {
                            looked.bad.push(BadPair { file: folder.clone(), why: why.clone() });
                            self.folders.insert(folder.clone(), why);
                        }
                        // The folder cannot be read: its known pairs stay.
                        there.extend(
                            self.known.keys().filter(|files| files.certificate.starts_with(folder)).cloned(),
                        );
                    }
                },
            }
        }
        let before = self.known.len();
        self.known.retain(|files, _| there.contains(files));
        looked.changed |= self.known.len() != before;
        for files in there {
            let (changed, bad) = self.look_at(files, now);
            looked.changed |= changed;
            looked.bad.extend(bad);
        }
        let usable = |all: &BTreeMap<PairFiles, Known>| all.values().any(|known| known.usable.is_some());
        let is_bare = needed && !usable(&self.known) && usable(&before_all);
        if is_bare {
            for (files, known) in before_all.into_iter().filter(|(_, known)| known.usable.is_some()) {
                // The files are read again at the next check, whatever they hold.
                self.known.entry(files).or_insert(Known { stamps: None, ..known });
            }
            looked.changed = false;
            if !self.bare {
                let file = self.places.first().map(|place| match place {
                    Place::Pair(files) => files.certificate.clone(),
                    Place::Folder(folder) => folder.clone(),
                });
                let why = "there is no certificate left that can be used".to_owned();
                looked.bad.push(BadPair { file: file.unwrap_or_default(), why });
            }
        }
        self.bare = is_bare;
        looked
    }

    fn look_at(&mut self, files: PairFiles, now: SystemTime) -> (bool, Option<BadPair>) {
        let stamps = stamp(&files.certificate).and_then(|one| Ok((one, stamp(&files.key)?))).ok();
        let known = self.known.get(&files);
        if let Some(known) = known
            && known.stamps == stamps
            && stamps.is_some()
        {
            return (false, None);
        }
        let before = known.and_then(|known| known.usable.clone());
        let told = known.and_then(|known| known.bad.clone());
        let read = read(&files).and_then(|usable| {
            let same = before.as_ref().is_some_and(|before| before.key.cert == usable.key.cert);
            let expired = usable.info.seconds_left(now) <= 0;
            // At the start an expired certificate is better than none: clients report that it has expired.
            if expired && !same && before.is_some() {
                return Err(BadPair {
                    file: files.certificate.clone(),
                    why: "the certificate has expired".to_owned(),
                });
            }
            Ok((usable, same))
        });
        let (usable, changed, bad) = match read {
            // The key may have changed although the certificate is the same.
            Ok((usable, _)) => (Some(Arc::new(usable)), true, None),
            Err(bad) => (before, false, Some(bad)),
        };
        // The files may be half of a new pair. When the other half is written, its stamp differs, and both
        // are read again.
        let why = bad.as_ref().map(|bad| bad.why.clone());
        let bad = bad.filter(|_| why != told);
        self.known.insert(files, Known { stamps, usable, bad: why });
        (changed, bad)
    }
}

/// The names of a pair in a folder of an ACME client, and those of its parts beside them.
const FULL_CHAIN: &str = "fullchain.pem";
const PRIVATE_KEY: &str = "privkey.pem";
const PARTS: [&str; 4] = [FULL_CHAIN, PRIVATE_KEY, "cert.pem", "chain.pem"];

/// Returns the pair in a folder of an ACME client, if it is one.
fn pair_of_client(folder: &Path) -> Option<PairFiles> {
    let files = PairFiles { certificate: folder.join(FULL_CHAIN), key: folder.join(PRIVATE_KEY) };
    (may_be_file(&files.certificate) && may_be_file(&files.key)).then_some(files)
}

/// Returns the pairs in a folder, and the servers' certificates in it that have no key.
fn pairs_in(folder: &Path) -> io::Result<(Vec<PairFiles>, Vec<PathBuf>)> {
    let (mut pairs, mut alone) = (Vec::new(), Vec::new());
    let own = pair_of_client(folder);
    let is_part = |path: &Path| own.is_some() && PARTS.iter().any(|part| path.ends_with(part));
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let hidden = path.file_name().is_none_or(|name| name.as_encoded_bytes().starts_with(b"."));
        if hidden || is_part(&path) {
            continue;
        }
        if path.is_dir() {
            pairs.extend(pair_of_client(&path));
            continue;
        }
        let end = path.extension().and_then(|end| end.to_str()).unwrap_or_default();
        if !matches!(end, "pem" | "crt" | "cer") {
            continue;
        }
        let key = path.with_extension("key");
        if may_be_file(&key) {
            pairs.push(PairFiles { certificate: path, key });
            continue;
        }
        match holds(&path) {
            Holds::Key => pairs.push(PairFiles { key: path.clone(), certificate: path }),
            Holds::ServerCertificate => alone.push(path),
            Holds::Nothing => {}
        }
    }
    pairs.extend(own);
    pairs.sort();
    Ok((pairs, alone))
}

/// Returns whether `file` is a file, or cannot be examined. In the latter case, reading it reports the
/// reason, and a pair that was usable stays in use.
fn may_be_file(file: &Path) -> bool {
    match fs::metadata(file) {
        Ok(of) => of.is_file(),
        Err(why) => is_there(&why),
    }
}

/// Returns whether the name exists although it could not be examined: permissions, or a loop of links.
fn is_there(why: &io::Error) -> bool {
    !matches!(why.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

/// Contents of a PEM file without a key file beside it.
enum Holds {
    /// It has a key, or cannot be read: reading it as a pair reports the reason.
    Key,
    /// A certificate without a key that does not belong to an authority.
    ServerCertificate,
    /// Something else, such as an authority's certificate: not a pair.
    Nothing,
}

fn holds(file: &Path) -> Holds {
    let bytes = match input::read(file) {
        Ok(bytes) => bytes,
        Err(why) => return if is_there(&why) { Holds::Key } else { Holds::Nothing },
    };
    if PrivateKeyDer::from_pem_slice(&bytes).is_ok() {
        return Holds::Key;
    }
    let Ok(first) = CertificateDer::from_pem_slice(&bytes) else { return Holds::Nothing };
    match x509_parser::parse_x509_certificate(&first) {
        Ok((_, parsed)) if !parsed.is_ca() => Holds::ServerCertificate,
        _ => Holds::Nothing,
    }
}

fn read(files: &PairFiles) -> Result<Usable, BadPair> {
    let bad = |file: &Path, why: String| BadPair { file: file.to_owned(), why };
    let pair = Pair::read(files)?;
    usable(pair, Some(&files.certificate)).map_err(|why| {
        let why = match why.starts_with("the key is not") {
            true => format!("{why} ({})", files.key.display()),
            false => why,
        };
        bad(&files.certificate, why)
    })
}

impl Pair {
    /// Reads a pair from PEM files.
    ///
    /// # Errors
    /// A file cannot be read, or lacks the certificate or the key.
    pub fn read(files: &PairFiles) -> Result<Pair, BadPair> {
        let chain = read_chain(&files.certificate)?;
        let bad = |why: String| BadPair { file: files.key.clone(), why };
        let bytes = input::read(&files.key).map_err(|why| bad(why.to_string()))?;
        let key = PrivateKeyDer::from_pem_slice(&bytes).map_err(|why| {
            bad(format!("a private key in PEM is expected, without a password ({})", pem_words(&why)))
        })?;
        Ok(Pair { chain, key })
    }

    /// Makes a pair from PEM texts.
    ///
    /// # Errors
    /// One of the texts is not valid PEM: which, and why.
    pub fn from_pem(chain: &str, key: &str) -> Result<Pair, String> {
        let certificates = CertificateDer::pem_slice_iter(chain.as_bytes());
        let chain: Vec<_> = certificates
            .collect::<Result<_, _>>()
            .map_err(|why| format!("certificates: {}", pem_words(&why)))?;
        let key = PrivateKeyDer::from_pem_slice(key.as_bytes());
        let key = key.map_err(|why| format!("key: {}", pem_words(&why)))?;
        Ok(Pair { chain, key })
    }
}

impl Clone for Pair {
    fn clone(&self) -> Pair {
        Pair { chain: self.chain.clone(), key: self.key.clone_key() }
    }
}

impl fmt::Debug for Pair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Pair({} certificates)", self.chain.len())
    }
}

/// Returns the certificates of a PEM file, at least one.
pub(crate) fn read_chain(file: &Path) -> Result<Vec<CertificateDer<'static>>, BadPair> {
    let bad = |why: String| BadPair { file: file.to_owned(), why };
    let bytes = input::read(file).map_err(|why| bad(why.to_string()))?;
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&bytes).collect();
    let chain =
        chain.map_err(|why| bad(format!("certificates in PEM are expected ({})", pem_words(&why))))?;
    if chain.is_empty() {
        return Err(bad("certificates in PEM are expected, and none was found".to_owned()));
    }
    Ok(chain)
}

/// Makes a pair for development, for these names and addresses. No other program trusts it. It is valid for
/// 90 days.
///
/// # Errors
/// A name is neither a DNS name nor an address.
pub fn self_signed(names: impl IntoIterator<Item = String>) -> Result<Pair, String> {
    let text = |why: rcgen::Error| why.to_string();
    let mut parameters =
        rcgen::CertificateParams::new(names.into_iter().collect::<Vec<_>>()).map_err(text)?;
    parameters.distinguished_name.push(rcgen::DnType::CommonName, "Ringroad development");
    let now = SystemTime::now();
    let day = Duration::from_secs(24 * 60 * 60);
    parameters.not_before = (now - day).into();
    parameters.not_after = (now + 90 * day).into();
    let key = rcgen::KeyPair::generate().map_err(text)?;
    let certificate = parameters.self_signed(&key).map_err(text)?;
    Ok(Pair {
        chain: vec![certificate.der().clone()],
        key: PrivateKeyDer::try_from(key.serialize_der()).map_err(str::to_owned)?,
    })
}
