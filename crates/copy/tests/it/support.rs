//! What the tests share: copying with an engine, remembering what was told.

use ringroad_copy::pack::{Names, Packed, Packing, Unpacked, Unpacking, pack, unpack};
use ringroad_copy::{
    Control, Dereference, Destination, Engine, Event, Observer, Options, Preserve, Report, copy,
};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, OnceLock};
use std::time::Instant;

/// Every engine that can be used here, and `auto`. What cannot is said.
pub(crate) fn engines() -> &'static [Engine] {
    static USABLE: OnceLock<Vec<Engine>> = OnceLock::new();
    USABLE.get_or_init(|| {
        let mut usable = vec![Engine::Threads, Engine::Auto];
        for engine in [Engine::Ring, Engine::RingSplice] {
            // Whether it is refused is settled before anything is looked for.
            let nothing = [std::path::PathBuf::from("/nonexistent")];
            let to = Destination::At("/nonexistent/either".into());
            match ringroad_copy::copy(&nothing, &to, &archive(engine), &(), &Control::new()) {
                Err(refusal) => eprintln!("skipped: {refusal}"),
                Ok(_) => usable.push(engine),
            }
        }
        usable
    })
}

/// Those of them that work on rings.
pub(crate) fn ring_engines() -> impl Iterator<Item = Engine> {
    engines().iter().copied().filter(|engine| matches!(engine, Engine::Ring | Engine::RingSplice))
}

/// `-a`, with this engine.
pub(crate) fn archive(engine: Engine) -> Options {
    Options {
        recursive: true,
        dereference: Dereference::Never,
        preserve: Preserve::ALL,
        engine,
        ..Options::default()
    }
}

/// Called with the source and the target of an entry that is in its place.
type Entry<'a> = dyn Fn(&Path, &Path) + Sync + 'a;

/// Remembers errors, and calls back for each entry.
#[derive(Default)]
pub(crate) struct Told<'a> {
    pub(crate) errors: Mutex<Vec<String>>,
    pub(crate) kinds: Mutex<Vec<ringroad_copy::ErrorKind>>,
    /// Warnings are no errors.
    pub(crate) warnings: Mutex<Vec<ringroad_copy::ErrorKind>>,
    pub(crate) entry: Option<&'a Entry<'a>>,
}

impl Observer for Told<'_> {
    fn wants_entries(&self) -> bool {
        self.entry.is_some()
    }

    fn event(&self, event: Event<'_>) {
        match event {
            Event::Error(error) if error.is_warning() => {
                self.warnings.lock().unwrap().push(error.kind);
            }
            Event::Error(error) => {
                self.errors.lock().unwrap().push(error.to_string());
                self.kinds.lock().unwrap().push(error.kind);
            }
            Event::Copied { source, target, .. } => {
                if let Some(entry) = self.entry {
                    entry(source, target);
                }
            }
            _ => {}
        }
    }
}

/// Copies `source` to exactly `target` and demands that every entry is accounted for.
pub(crate) fn run(source: &Path, target: &Path, options: &Options, told: &Told<'_>) -> Report {
    run_with(source, target, options, told, &Control::new())
}

pub(crate) fn run_with(
    source: &Path,
    target: &Path,
    options: &Options,
    told: &Told<'_>,
    control: &Control,
) -> Report {
    let sources = [source.to_path_buf()];
    let report = copy(&sources, &Destination::At(target.to_path_buf()), options, told, control).unwrap();
    let totals = report.totals;
    assert!(totals.balance(), "scanned is copied, skipped and failed: {totals:?}");
    assert_eq!(totals.errors as usize, told.errors.lock().unwrap().len());
    report
}

/// Copies without a word; anything told is a failure of the test.
pub(crate) fn clean(source: &Path, target: &Path, options: &Options) -> Report {
    let told = Told::default();
    let report = run(source, target, options, &told);
    assert!(report.is_success(), "{options:?}: {:?} {report:?}", told.errors.lock().unwrap());
    report
}

/// Looks again and again, by rounds with numbers, until `look` returns true; returns whether it did. It gives
/// up after a minute, and not before it has looked 200 times.
pub(crate) fn sees(look: impl FnMut(usize) -> bool) -> bool {
    let begun = Instant::now();
    (0..).take_while(|round| *round < 200 || begun.elapsed().as_secs() < 60).any(look)
}

/// Packs a tree into shards of about so many bytes, with an index each, by so many threads. Returns them too.
pub(crate) fn packed(source: &Path, place: &Path, shard_bytes: u64, jobs: usize) -> (Packed, Vec<PathBuf>) {
    let packing =
        Packing { shard_bytes, mtime: None, owner: None, part: None, jobs, exclude: Vec::new(), index: true };
    let names: Names = place.join("s-%d.tar").to_str().unwrap().parse().unwrap();
    let packed = pack(source, &names, &packing, &(), &Control::new()).unwrap();
    let shards = (0..packed.shards).map(|number| names.name(number)).collect();
    (packed, shards)
}

/// Unpacks shards that have indexes.
pub(crate) fn unpacked(shards: &[PathBuf], to: &Path, jobs: usize) -> Unpacked {
    let unpacking = Unpacking { owners: false, part: None, jobs, needs_index: true };
    unpack(shards, to, &unpacking, &(), &Control::new()).unwrap()
}

/// A source folder and a target's name in a fresh place.
pub(crate) fn folders() -> (tempfile::TempDir, PathBuf, PathBuf) {
    let place = tempfile::tempdir().unwrap();
    let source = place.path().join("source");
    std::fs::create_dir(&source).unwrap();
    let target = place.path().join("target");
    (place, source, target)
}

/// `count` files of `bytes`, ten directories.
pub(crate) fn many(source: &Path, count: usize, bytes: usize) {
    for at in 0..count {
        let folder = source.join(format!("d{}", at % 10));
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join(format!("f{at}")), crate::tree::noise(bytes, at as u64)).unwrap();
    }
}

/// Every regular file below, with its bytes.
pub(crate) fn files(folder: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_path_buf()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).unwrap() {
            let entry = entry.unwrap();
            let kind = entry.file_type().unwrap();
            if kind.is_dir() {
                folders.push(entry.path());
            } else if kind.is_file() {
                found.push((entry.path(), std::fs::read(entry.path()).unwrap()));
            }
        }
    }
    found
}

/// Every file of `target` is whole: equal to the file of the same name in `source`.
pub(crate) fn assert_no_torn_file(source: &Path, target: &Path) {
    for (path, bytes) in files(target) {
        let original = source.join(path.strip_prefix(target).unwrap());
        assert!(std::fs::read(&original).unwrap() == bytes, "{} is not whole", path.display());
    }
}
