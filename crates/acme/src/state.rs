//! The state folder: the account's key, certificates with their keys, and the last failures.
//!
//! It has a folder for each authority. A certificate and its key are one file, so that the two always match.
//! Files are readable by their owner only, and replaced as a whole: after a kill either the old or the new
//! file exists.

use crate::key::AccountKey;
use crate::settings::Settings;
use aws_lc_rs::digest::{SHA256, digest};
use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use ringroad_host::input;
use ringroad_tls::{BadPair, Issued, Pair, PairFiles, examine};
use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The state folder cannot be used.
#[derive(Debug)]
pub struct StateError {
    folder: PathBuf,
    why: io::Error,
}

impl fmt::Display for StateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "state folder of ACME, on {}: {}", self.folder.display(), self.why)
    }
}

impl std::error::Error for StateError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.why)
    }
}

/// Contents of the state folder for some settings.
#[derive(Debug, Default)]
pub struct Stored {
    /// The certificates. For a missing one, others of the same authority with some of its names are used.
    pub pairs: Vec<Pair>,
    /// Why some of them cannot be used.
    pub bad: Vec<BadPair>,
    /// Set if all certificates exist and nothing can be written, so that they cannot be renewed.
    pub unwritable: Option<StateError>,
}

/// Reads the contents of the state folder for these settings. Makes the folder if it is missing.
///
/// # Errors
/// The folder cannot be made; or nothing can be written there, and a certificate is missing.
pub fn stored(settings: &Settings) -> Result<Stored, StateError> {
    let folder = Folder::of(settings);
    let prepared = folder.make_room();
    let (mut stored, mut held) = (Stored::default(), 0);
    for names in &settings.certificates {
        match folder.certificate(names) {
            Ok(Some(kept)) => {
                stored.pairs.push(kept.pair);
                held += 1;
            }
            Ok(None) => stored.pairs.extend(folder.stand_ins(names)),
            Err(why) => stored.bad.push(why),
        }
    }
    let unwritable = prepared.err().map(|why| StateError { folder: settings.state.clone(), why });
    // A full disk does not prevent serving. The renewal reports it again.
    if held == settings.certificates.len() {
        return Ok(Stored { unwritable, ..stored });
    }
    unwritable.map_or(Ok(stored), Err)
}

/// Upper bound for the size of a certificate with its chain and key, in bytes.
const ROOM_BYTES: usize = 32 * 1024;

/// The folder of one authority.
#[derive(Clone, Debug)]
pub(crate) struct Folder {
    path: PathBuf,
}

/// A certificate of the folder.
pub(crate) struct Kept {
    pub(crate) pair: Pair,
    pub(crate) issued: Issued,
}

/// The account, as it is written.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct AccountFile {
    /// The key, as PKCS #8 in base64url.
    key: String,
    pub(crate) url: Option<String>,
    pub(crate) contact: Option<String>,
}

impl AccountFile {
    pub(crate) fn new(key: &AccountKey, url: Option<String>, contact: Option<String>) -> AccountFile {
        AccountFile { key: BASE64_URL_SAFE_NO_PAD.encode(key.document()), url, contact }
    }

    pub(crate) fn key(&self) -> Result<AccountKey, String> {
        let bytes = BASE64_URL_SAFE_NO_PAD.decode(&self.key);
        AccountKey::from_document(&bytes.map_err(|why| format!("the account's key: {why}"))?)
    }
}

/// The last failures, for the next start: a server that is restarted repeatedly does not ask more often.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Failures {
    pub(crate) count: u32,
    /// Seconds since 1970.
    again: u64,
}

impl Failures {
    pub(crate) fn new(count: u32, again: SystemTime) -> Failures {
        let again = again.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        Failures { count, again }
    }

    pub(crate) fn again(self) -> SystemTime {
        // A time beyond the clock's range counts as none.
        UNIX_EPOCH.checked_add(Duration::from_secs(self.again)).unwrap_or(UNIX_EPOCH)
    }
}

impl Folder {
    pub(crate) fn of(settings: &Settings) -> Folder {
        let host = settings.directory.split_once("://").map_or("", |(_, rest)| rest);
        let host = host.split(['/', ':', '?']).next().unwrap_or_default();
        let name = format!("{}-{}", plain(host), short_digest(&settings.directory));
        Folder { path: settings.state.join(name) }
    }

    /// Makes the folder, and checks that a certificate can be written there.
    pub(crate) fn prepare(&self) -> Result<(), String> {
        self.make_room().map_err(|why| format!("write, on {}: {why}", self.path.display()))
    }

    fn make_room(&self) -> io::Result<()> {
        DirBuilder::new().recursive(true).mode(0o700).create(&self.path)?;
        let probe = self.path.join(format!(".probe-{}-{}", std::process::id(), unique()));
        // On a full disk, an empty file can still be made.
        let written = write(&probe, &[0; ROOM_BYTES]);
        let removed = fs::remove_file(probe);
        written.and(removed)
    }

    pub(crate) fn account(&self) -> Result<Option<AccountFile>, String> {
        let path = self.path.join("account.json");
        let of_file = |why: String| format!("read, on {}: {why}", path.display());
        match input::read(&path) {
            Ok(bytes) => serde_json::from_slice(&bytes).map(Some).map_err(|why| of_file(why.to_string())),
            Err(why) if why.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(why) => Err(of_file(why.to_string())),
        }
    }

    pub(crate) fn save_account(&self, account: &AccountFile) -> Result<(), String> {
        let text = serde_json::to_vec_pretty(account).map_err(|why| why.to_string())?;
        self.replace("account.json", &text)
    }

    /// Returns the path of the certificate with these names.
    fn file(&self, names: &[String], end: &str) -> String {
        let mut sorted: Vec<_> = names.iter().map(|name| name.to_ascii_lowercase()).collect();
        sorted.sort();
        let first = names.first().map(String::as_str).unwrap_or_default();
        format!("{}-{}.{end}", plain(first), short_digest(&sorted.join("\n")))
    }

    /// Returns the certificate with these names; `None` if there is none.
    pub(crate) fn certificate(&self, names: &[String]) -> Result<Option<Kept>, BadPair> {
        let path = self.path.join(self.file(names, "pem"));
        // If this fails, the failure is the reason why the certificate is not used: it may exist.
        match path.try_exists() {
            Ok(true) => self.read(&path).map(Some),
            Ok(false) => Ok(None),
            Err(why) => Err(BadPair { file: path, why: why.to_string() }),
        }
    }

    fn read(&self, path: &Path) -> Result<Kept, BadPair> {
        let files = PairFiles { certificate: path.to_owned(), key: path.to_owned() };
        let pair = Pair::read(&files)?;
        let issued = examine(&pair).map_err(|why| BadPair { file: path.to_owned(), why })?;
        Ok(Kept { pair, issued })
    }

    /// Returns valid certificates that cover some of these names: those from before the names changed.
    pub(crate) fn stand_ins(&self, names: &[String]) -> Vec<Pair> {
        let mut found = Vec::new();
        let mut missing: Vec<_> = names.iter().collect();
        let mut files: Vec<_> = fs::read_dir(&self.path).into_iter().flatten().flatten().collect();
        files.sort_by_key(fs::DirEntry::file_name);
        for file in files.iter().map(fs::DirEntry::path) {
            if file.extension().is_none_or(|end| end != "pem") {
                continue;
            }
            let Ok(kept) = self.read(&file) else { continue };
            let before = missing.len();
            if kept.issued.expires > SystemTime::now() {
                missing.retain(|name| !kept.issued.names.covers(name));
            }
            if missing.len() < before {
                found.push(kept.pair);
            }
        }
        found
    }

    /// Stores a certificate with its key.
    pub(crate) fn save_certificate(&self, names: &[String], chain: &str, key: &str) -> Result<(), String> {
        let text = format!("{}\n{}\n", key.trim_end(), chain.trim_end());
        self.replace(&self.file(names, "pem"), text.as_bytes())
    }

    pub(crate) fn failures(&self, names: &[String]) -> Failures {
        let bytes = input::read(&self.path.join(self.file(names, "json"))).unwrap_or_default();
        serde_json::from_slice(&bytes).unwrap_or_default()
    }

    /// Stores the last failures; removes the file if there are none.
    pub(crate) fn save_failures(&self, names: &[String], failures: Failures) -> Result<(), String> {
        let file = self.file(names, "json");
        if failures == Failures::default() {
            let _ = fs::remove_file(self.path.join(file));
            return Ok(());
        }
        let text = serde_json::to_vec(&failures).map_err(|why| why.to_string())?;
        self.replace(&file, &text)
    }

    /// Locks the folder against other processes, until the file is dropped; `None` if another has it.
    pub(crate) fn lock(&self) -> Result<Option<File>, String> {
        let path = self.path.join("lock");
        let of_file = |why: io::Error| format!("lock, on {}: {why}", path.display());
        let mut options = OpenOptions::new();
        let file =
            options.create(true).truncate(false).write(true).mode(0o600).open(&path).map_err(of_file)?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Some(file)),
            Err(rustix::io::Errno::WOULDBLOCK) => Ok(None),
            Err(why) => Err(of_file(why.into())),
        }
    }

    fn replace(&self, name: &str, bytes: &[u8]) -> Result<(), String> {
        let path = self.path.join(name);
        let of_file = |why: io::Error| format!("write, on {}: {why}", path.display());
        let new = self.path.join(format!(".{name}-{}-{}", std::process::id(), unique()));
        let written = write(&new, bytes).and_then(|()| fs::rename(&new, &path));
        if written.is_err() {
            let _ = fs::remove_file(&new);
        }
        written.map_err(of_file)?;
        // Syncs the folder, so that the name is on the disk too.
        File::open(&self.path).and_then(|folder| folder.sync_all()).map_err(of_file)
    }
}

/// Writes a new file that only its owner may read.
fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(bytes)?;
    file.sync_all()
}

/// Returns a number that is unique in this process.
fn unique() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// Returns a name in a form for file names.
fn plain(name: &str) -> String {
    let one = |byte: char| match byte {
        'a'..='z' | '0'..='9' | '-' | '.' => byte,
        'A'..='Z' => byte.to_ascii_lowercase(),
        _ => '_',
    };
    let text: String = name.chars().map(one).take(100).collect();
    text.trim_start_matches('.').to_owned()
}

fn short_digest(text: &str) -> String {
    let digest = digest(&SHA256, text.as_bytes());
    digest.as_ref().iter().take(4).map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
pub(crate) mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::settings::{ChallengeKind, DEFAULT_DIRECTORY};
    use std::os::unix::fs::PermissionsExt;

    pub(crate) fn settings(state: &Path, names: &[&str]) -> Settings {
        Settings {
            certificates: vec![names.iter().map(|name| (*name).to_owned()).collect()],
            contact: None,
            directory: DEFAULT_DIRECTORY.to_owned(),
            state: state.to_owned(),
            challenge: ChallengeKind::Http01,
            ca: None,
            external: None,
            profile: None,
            retry: Duration::from_secs(60),
        }
    }

    pub(crate) fn keep(folder: &Folder, names: &[&str]) {
        let names: Vec<_> = names.iter().map(|name| (*name).to_owned()).collect();
        let request = ringroad_tls::self_signed(names.clone()).unwrap();
        let pem = |label: &str, der: &[u8]| {
            let text = base64::prelude::BASE64_STANDARD.encode(der);
            let lines: Vec<_> =
                text.as_bytes().chunks(64).map(|line| str::from_utf8(line).unwrap()).collect();
            format!("-----BEGIN {label}-----\n{}\n-----END {label}-----\n", lines.join("\n"))
        };
        let chain = pem("CERTIFICATE", &request.chain[0]);
        folder.save_certificate(&names, &chain, &pem("PRIVATE KEY", request.key.secret_der())).unwrap();
    }

    #[test]
    fn a_certificate_that_cannot_be_looked_at_is_told_and_not_taken_for_none() {
        let state = tempfile::tempdir().unwrap();
        let wanted = settings(state.path(), &["a.test"]);
        let folder = Folder::of(&wanted);
        folder.prepare().unwrap();
        let file = folder.path.join(folder.file(&wanted.certificates[0], "pem"));
        std::os::unix::fs::symlink(&file, &file).unwrap();
        let Stored { pairs, bad, .. } = stored(&wanted).unwrap();
        assert!(pairs.is_empty());
        assert_eq!(bad.iter().map(|bad| &bad.file).collect::<Vec<_>>(), [&file], "{bad:?}");
    }

    #[test]
    fn what_is_kept_is_read_again_and_only_its_owner_may_read_it() {
        let state = tempfile::tempdir().unwrap();
        let wanted = settings(&state.path().join("deep/er"), &["a.test", "b.test"]);
        let Stored { pairs, bad, .. } = stored(&wanted).unwrap();
        assert!(pairs.is_empty() && bad.is_empty());
        let folder = Folder::of(&wanted);
        keep(&folder, &["a.test", "b.test"]);
        let key = AccountKey::generate().unwrap();
        let account = AccountFile::new(&key, Some("https://a.test/1".to_owned()), None);
        folder.save_account(&account).unwrap();
        let read = folder.account().unwrap().unwrap();
        assert_eq!(read.url.as_deref(), Some("https://a.test/1"));
        assert_eq!(read.key().unwrap().document(), key.document());
        let failures = Failures::new(3, UNIX_EPOCH + Duration::from_secs(77));
        folder.save_failures(&wanted.certificates[0], failures).unwrap();
        assert_eq!(folder.failures(&wanted.certificates[0]), failures);
        let _lock = folder.lock().unwrap().unwrap();
        assert!(folder.lock().unwrap().is_none(), "another has it");
        for entry in fs::read_dir(&folder.path).unwrap() {
            let entry = entry.unwrap();
            assert_eq!(entry.metadata().unwrap().permissions().mode() & 0o777, 0o600, "{entry:?}");
        }
        assert_eq!(fs::metadata(&folder.path).unwrap().permissions().mode() & 0o777, 0o700);
        folder.save_failures(&wanted.certificates[0], Failures::default()).unwrap();
        assert_eq!(folder.failures(&wanted.certificates[0]), Failures::default());
        assert_eq!(stored(&wanted).unwrap().pairs.len(), 1);
    }

    #[test]
    fn where_names_have_changed_the_certificate_of_before_stands_in() {
        let state = tempfile::tempdir().unwrap();
        let before = settings(state.path(), &["a.test"]);
        stored(&before).unwrap();
        keep(&Folder::of(&before), &["a.test"]);
        assert_eq!(stored(&settings(state.path(), &["a.test", "new.test"])).unwrap().pairs.len(), 1);
        assert!(stored(&settings(state.path(), &["other.test"])).unwrap().pairs.is_empty());
        // Another authority's are not used: they may be for tests.
        let other = Settings { directory: "https://other.test/".to_owned(), ..before };
        assert!(stored(&other).unwrap().pairs.is_empty());
    }

    #[test]
    fn a_file_that_is_broken_is_told_and_a_name_makes_no_path() {
        let state = tempfile::tempdir().unwrap();
        let wanted = settings(state.path(), &["../../etc/a.test"]);
        stored(&wanted).unwrap();
        let folder = Folder::of(&wanted);
        let file = folder.file(&wanted.certificates[0], "pem");
        assert!(!file.contains('/') && !file.starts_with('.'), "{file}");
        fs::write(folder.path.join(&file), "half").unwrap();
        let Stored { pairs, bad, .. } = stored(&wanted).unwrap();
        assert!(pairs.is_empty() && bad[0].to_string().contains(&file), "{bad:?}");
    }
}
