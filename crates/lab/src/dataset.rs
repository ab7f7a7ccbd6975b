//! Trees of files to copy: the datasets of the copier's benchmarks, the same on every machine.
//!
//! A [`Dataset`] names a shape (how many files, how big, in which folders); [`make`] writes it. Names, sizes,
//! contents and times follow from the shape alone: the seed is fixed, so that every machine measures the same
//! tree. Contents are random, so that no file system can compress or share them. Start at [`make`].

use ringroad_measure::units::Bytes;
use rustix::fs::{self, AtFlags, Mode, OFlags, Timespec, Timestamps};
use std::fmt;
use std::fs::File;
use std::io::{self, Write};
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

/// The seed of every tree. Never changed, so that records stay comparable.
const SEED: u64 = 0x5eed_0004;

/// What bigger files are written in pieces of, and what smaller ones are cut from.
const NOISE_BYTES: usize = 1 << 20;

/// 8 January 2026, 01:45 UTC; every file is a little younger than the one before.
const EPOCH_S: i64 = 1_767_836_700;

/// A shape. Counts are those of scale 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dataset {
    /// 1,280,000 files of 100 to 200 KB in 1000 class folders.
    Imagenet,
    /// 330,000 files of 50 to 500 KB in four flat folders.
    Coco,
    /// 70,000 files of 784 bytes, ten classes for training and ten for testing.
    Mnist,
    /// 60,000 files of 3072 bytes, ten classes for training and ten for testing.
    Cifar10,
    /// 100,000 files: 40 % like MNIST, 30 % like CIFAR-10, 20 % like ImageNet, 10 % like COCO; ten shards of
    /// 32 MiB beside them, 1000 symbolic links, 1000 hard links and 100 empty folders.
    Mixed,
    /// As many files of one size, spread evenly over as many folders (one: all in the root itself).
    Uniform {
        /// Files in all.
        files: u64,
        /// Bytes in each.
        bytes: u64,
        /// Folders they lie in.
        folders: u64,
    },
}

/// What was written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Made {
    /// Regular files, each counted once however many names it has.
    pub files: u64,
    /// Bytes in them.
    pub bytes: u64,
    /// Folders, without the root.
    pub folders: u64,
    /// Symbolic links and further names of files.
    pub links: u64,
}

/// Why a tree could not be made.
#[derive(Debug)]
#[non_exhaustive]
pub enum DatasetError {
    /// The folder is there and has something in it; a tree is not mixed with what is already there.
    NotEmpty(PathBuf),
    /// The scale is not above 0 and at most 1000, or leaves no file.
    Scale(f64),
    /// The file system has less free than the files take.
    Room {
        /// The folder.
        path: PathBuf,
        /// Bytes of all files, about.
        bytes: u64,
        /// Bytes that are free.
        free: u64,
    },
    /// The system refused.
    Io {
        /// What was attempted.
        what: &'static str,
        /// On what.
        path: PathBuf,
        /// Why it failed.
        source: io::Error,
    },
}

impl fmt::Display for DatasetError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DatasetError::NotEmpty(path) => {
                write!(f, "{} is not empty: choose a new folder", path.display())
            }
            DatasetError::Scale(scale) => {
                write!(f, "--scale {scale}: must be above 0 and at most 1000, and leave at least one file")
            }
            DatasetError::Room { path, bytes, free } => write!(
                f,
                "{}: the files take {}, and {} are free there: choose another folder, or less with --scale",
                path.display(),
                Bytes(*bytes),
                Bytes(*free)
            ),
            DatasetError::Io { what, path, source } => write!(f, "{what}, on {}: {source}", path.display()),
        }
    }
}

impl std::error::Error for DatasetError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            DatasetError::Io { source, .. } => Some(source),
            _ => None,
        }
    }
}

impl FromStr for Dataset {
    type Err = String;

    /// Returns a name, or `COUNTxBYTES` with an optional `/FOLDERS`: `100000x4K/100`.
    fn from_str(text: &str) -> Result<Dataset, String> {
        match text {
            "imagenet" => Ok(Dataset::Imagenet),
            "coco" => Ok(Dataset::Coco),
            "mnist" => Ok(Dataset::Mnist),
            "cifar10" => Ok(Dataset::Cifar10),
            "mixed" => Ok(Dataset::Mixed),
            _ => uniform(text).ok_or_else(|| {
                "not a dataset (there are: imagenet, coco, mnist, cifar10, mixed, \
                 and COUNTxBYTES[/FOLDERS] as in 100000x4K/100)"
                    .to_string()
            }),
        }
    }
}

fn uniform(text: &str) -> Option<Dataset> {
    let (shape, folders) = text.split_once('/').unwrap_or((text, "1"));
    let (files, bytes) = shape.split_once('x')?;
    let (digits, unit) = match bytes.strip_suffix(['k', 'K']) {
        Some(digits) => (digits, 1 << 10),
        None => bytes.strip_suffix(['m', 'M']).map_or((bytes, 1), |digits| (digits, 1 << 20)),
    };
    let bytes = digits.parse::<u64>().ok()?.checked_mul(unit)?;
    let (files, folders) = (files.parse().ok()?, folders.parse().ok()?);
    (files > 0 && folders > 0 && folders <= files).then_some(Dataset::Uniform { files, bytes, folders })
}

/// How the files of a part are called and how big they are.
#[derive(Clone, Copy, Debug)]
enum Kind {
    Imagenet { class: u64 },
    Coco,
    Mnist,
    Cifar10,
    Shard,
    Uniform { bytes: u64 },
}

impl Kind {
    /// Returns the sizes a file may have.
    fn sizes(self) -> (u64, u64) {
        match self {
            Kind::Imagenet { .. } => (100_000, 200_000),
            Kind::Coco => (50_000, 500_000),
            Kind::Mnist => (784, 784),
            Kind::Cifar10 => (3072, 3072),
            Kind::Shard => (32 << 20, 32 << 20),
            Kind::Uniform { bytes } => (bytes, bytes),
        }
    }

    fn name(self, number: u64) -> String {
        match self {
            Kind::Imagenet { class } => format!("n{class:08}_{number}.JPEG"),
            Kind::Coco => format!("{number:012}.jpg"),
            Kind::Mnist => format!("{number:05}.raw"),
            Kind::Cifar10 => format!("{number:05}.bin"),
            Kind::Shard => format!("shard-{number:06}.tar"),
            Kind::Uniform { .. } => format!("{number:08}"),
        }
    }
}

/// A folder and the files directly in it, by their numbers.
#[derive(Debug)]
struct Folder {
    path: PathBuf,
    numbers: Range<u64>,
    kind: Kind,
}

/// The whole tree as data: folders with their files, then what needs those files to be there.
#[derive(Debug, Default)]
struct Plan {
    folders: Vec<Folder>,
    empty: Vec<PathBuf>,
    /// Link, and what it holds.
    symlinks: Vec<(PathBuf, PathBuf)>,
    /// New name, and the file it is a name of.
    hardlinks: Vec<(PathBuf, PathBuf)>,
}

impl Plan {
    fn of(dataset: Dataset, scale: f64) -> Plan {
        let scaled = |count: u64| (count as f64 * scale).round() as u64;
        let mut plan = Plan::default();
        match dataset {
            Dataset::Imagenet => plan.imagenet("", scaled(1_280_000)),
            Dataset::Coco => plan.coco("", scaled(330_000)),
            Dataset::Mnist => plan.classes("", Kind::Mnist, scaled(60_000), scaled(10_000)),
            Dataset::Cifar10 => plan.classes("", Kind::Cifar10, scaled(50_000), scaled(10_000)),
            Dataset::Mixed => plan.mixed(scaled),
            Dataset::Uniform { files, bytes, folders } => {
                let files = scaled(files);
                let kind = |_| Kind::Uniform { bytes };
                if folders == 1 {
                    plan.folders.push(Folder { path: PathBuf::new(), numbers: 0..files, kind: kind(0) });
                } else {
                    plan.spread(Path::new(""), files, folders, |nth| format!("{nth:05}"), kind);
                }
            }
        }
        plan
    }

    /// Files spread evenly over folders, numbered through.
    fn spread(
        &mut self,
        root: &Path,
        files: u64,
        folders: u64,
        name: impl Fn(u64) -> String,
        kind: impl Fn(u64) -> Kind,
    ) {
        let folders = folders.min(files);
        for nth in 0..folders {
            let numbers = files * nth / folders..files * (nth + 1) / folders;
            self.folders.push(Folder { path: root.join(name(nth)), numbers, kind: kind(nth) });
        }
    }

    fn imagenet(&mut self, root: &str, files: u64) {
        // Synset numbers, as they look: eight digits, far from each other, never twice.
        let class = |nth: u64| 1_440_764 + nth * 13_627;
        let name = |nth| format!("n{:08}", class(nth));
        self.spread(&Path::new(root).join("train"), files, 1000, name, |nth| Kind::Imagenet {
            class: class(nth),
        });
    }

    fn coco(&mut self, root: &str, files: u64) {
        // In the proportions of the 2017 release.
        let mut begin = 0;
        for (name, end_share) in
            [("train2017", 0.41), ("val2017", 0.43), ("test2017", 0.57), ("unlabeled2017", 1.0)]
        {
            let end = (files as f64 * end_share).round() as u64;
            let path = Path::new(root).join(name);
            self.folders.push(Folder { path, numbers: begin..end, kind: Kind::Coco });
            begin = end;
        }
    }

    fn classes(&mut self, root: &str, kind: Kind, train: u64, test: u64) {
        const CIFAR10: [&str; 10] =
            ["airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"];
        let name = |nth: u64| match kind {
            Kind::Cifar10 => {
                CIFAR10.get(nth as usize).map_or_else(|| nth.to_string(), |name| name.to_string())
            }
            _ => nth.to_string(),
        };
        for (part, files) in [("train", train), ("test", test)] {
            self.spread(&Path::new(root).join(part), files, 10, name, |_| kind);
        }
    }

    fn mixed(&mut self, scaled: impl Fn(u64) -> u64) {
        self.classes("mnist", Kind::Mnist, scaled(34_000), scaled(6_000));
        self.classes("cifar10", Kind::Cifar10, scaled(25_000), scaled(5_000));
        self.imagenet("imagenet", scaled(20_000));
        self.coco("coco", scaled(10_000));
        let targets: Vec<PathBuf> = self
            .folders
            .iter()
            .filter(|folder| !folder.numbers.is_empty())
            .map(|folder| folder.path.join(folder.kind.name(folder.numbers.start)))
            .collect();
        self.folders.push(Folder { path: "shards".into(), numbers: 0..scaled(10), kind: Kind::Shard });
        self.empty.extend((0..scaled(100)).map(|nth| PathBuf::from(format!("logs/run-{nth:03}"))));
        for (nth, target) in targets.iter().cycle().take(scaled(1000) as usize).enumerate() {
            self.symlinks.push((format!("samples/{nth:04}").into(), Path::new("..").join(target)));
            self.hardlinks.push((format!("split/{nth:04}").into(), target.clone()));
        }
    }

    /// Bytes of all files: sizes that are drawn count with their mean.
    fn bytes(&self) -> u64 {
        let of = |folder: &Folder| {
            let (least, most) = folder.kind.sizes();
            (folder.numbers.end - folder.numbers.start).saturating_mul(least.midpoint(most))
        };
        self.folders.iter().map(of).fold(0, u64::saturating_add)
    }

    /// Every folder of the tree, parents first.
    fn all_folders(&self) -> std::collections::BTreeSet<&Path> {
        let inside = self.symlinks.iter().chain(&self.hardlinks).filter_map(|(link, _)| link.parent());
        let named = self.folders.iter().map(|folder| folder.path.as_path());
        named
            .chain(self.empty.iter().map(PathBuf::as_path))
            .chain(inside)
            .flat_map(Path::ancestors)
            .filter(|path| !path.as_os_str().is_empty())
            .collect()
    }
}

/// Writes the tree into `root`, which must be empty or not there yet, with as many threads as given.
///
/// What a failure leaves behind stays: half a tree helps to find the reason.
pub fn make(dataset: Dataset, scale: f64, root: &Path, threads: usize) -> Result<Made, DatasetError> {
    let plan = if scale > 0.0 && scale <= 1000.0 { Plan::of(dataset, scale) } else { Plan::default() };
    if plan.folders.iter().all(|folder| folder.numbers.is_empty()) {
        return Err(DatasetError::Scale(scale));
    }
    let place = Place::prepare(root)?;
    // A file system that does not tell may have room.
    let free =
        fs::fstatvfs(place.root()).map_or(u64::MAX, |there| there.f_bavail.saturating_mul(there.f_frsize));
    let bytes = plan.bytes();
    if bytes > free {
        return Err(DatasetError::Room { path: root.to_path_buf(), bytes, free });
    }
    let folders = plan.all_folders();
    for path in &folders {
        place.folder(path)?;
    }
    let mut made = write_files(&place, &plan.folders, threads.max(1))?;
    for (link, target) in &plan.symlinks {
        fs::symlinkat(target, place.root(), link).map_err(|error| place.failed("symlink", link, error))?;
        let times = stamp(0);
        fs::utimensat(place.root(), link, &times, AtFlags::SYMLINK_NOFOLLOW)
            .map_err(|error| place.failed("set times", link, error))?;
    }
    for (name, file) in &plan.hardlinks {
        fs::linkat(place.root(), file, place.root(), name, AtFlags::empty())
            .map_err(|error| place.failed("link", name, error))?;
    }
    // Children first: what is made inside a folder changes its times.
    for path in folders.iter().rev() {
        fs::utimensat(place.root(), *path, &stamp(0), AtFlags::empty())
            .map_err(|error| place.failed("set times", path, error))?;
    }
    fs::futimens(place.root(), &stamp(0)).map_err(|error| place.failed("set times", Path::new(""), error))?;
    made.folders = folders.len() as u64;
    made.links = (plan.symlinks.len() + plan.hardlinks.len()) as u64;
    Ok(made)
}

/// The root, and how its failures are told.
struct Place {
    path: PathBuf,
    descriptor: File,
}

impl Place {
    fn prepare(path: &Path) -> Result<Place, DatasetError> {
        let failed = |what, source| DatasetError::Io { what, path: path.to_path_buf(), source };
        std::fs::create_dir_all(path).map_err(|error| failed("create a folder", error))?;
        if std::fs::read_dir(path).map_err(|error| failed("list", error))?.next().is_some() {
            return Err(DatasetError::NotEmpty(path.to_path_buf()));
        }
        let descriptor = File::open(path).map_err(|error| failed("open", error))?;
        Ok(Place { path: path.to_path_buf(), descriptor })
    }

    fn root(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }

    fn folder(&self, path: &Path) -> Result<(), DatasetError> {
        fs::mkdirat(self.root(), path, Mode::from_raw_mode(0o777))
            .map_err(|error| self.failed("create a folder", path, error))
    }

    fn failed(&self, what: &'static str, path: &Path, source: impl Into<io::Error>) -> DatasetError {
        DatasetError::Io { what, path: self.path.join(path), source: source.into() }
    }
}

fn stamp(number: u64) -> Timestamps {
    let time =
        Timespec { tv_sec: EPOCH_S + (number / 1000) as i64, tv_nsec: (number % 1000 * 1_000_001) as i64 };
    Timestamps { last_access: time, last_modification: time }
}

/// Threads take whole folders: one thread at a time in each, where they would only wait for each other.
fn write_files(place: &Place, folders: &[Folder], threads: usize) -> Result<Made, DatasetError> {
    let next = AtomicUsize::new(0);
    let (files, bytes) = (AtomicU64::new(0), AtomicU64::new(0));
    let stop = AtomicBool::new(false);
    let failure = Mutex::new(None);
    let noise = noise();
    let write = || {
        let mut noise = noise.clone();
        while let Some(folder) = folders.get(next.fetch_add(1, Ordering::Relaxed)) {
            match write_folder(place, folder, &mut noise, &stop) {
                Ok(written) => {
                    files.fetch_add(folder.numbers.end - folder.numbers.start, Ordering::Relaxed);
                    bytes.fetch_add(written, Ordering::Relaxed);
                }
                Err(error) => {
                    stop.store(true, Ordering::Relaxed);
                    // The first is the one to tell: others follow from it (a full disk fills for
                    // all).
                    if let Ok(mut failure) = failure.lock() {
                        failure.get_or_insert(error);
                    }
                }
            }
            if stop.load(Ordering::Relaxed) {
                break;
            }
        }
    };
    std::thread::scope(|scope| {
        // Where the system refuses a thread, those there are do the work.
        let begin = || std::thread::Builder::new().spawn_scoped(scope, write).is_ok();
        let _ = (1..threads.min(folders.len())).all(|_| begin());
        write();
    });
    match failure.into_inner() {
        Ok(Some(error)) => Err(error),
        _ => Ok(Made { files: files.into_inner(), bytes: bytes.into_inner(), ..Made::default() }),
    }
}

fn write_folder(
    place: &Place,
    folder: &Folder,
    noise: &mut [u8],
    stop: &AtomicBool,
) -> Result<u64, DatasetError> {
    let path = if folder.path.as_os_str().is_empty() { Path::new(".") } else { folder.path.as_path() };
    let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC;
    let inside = fs::openat(place.root(), path, flags, Mode::empty())
        .map_err(|error| place.failed("open", &folder.path, error))?;
    let mut bytes = 0;
    for number in folder.numbers.clone() {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        let name = folder.kind.name(number);
        bytes += write_file(inside.as_fd(), &name, folder, number, noise)
            .map_err(|error| place.failed("write", &folder.path.join(&name), error))?;
    }
    Ok(bytes)
}

fn write_file(
    inside: BorrowedFd<'_>,
    name: &str,
    folder: &Folder,
    number: u64,
    noise: &mut [u8],
) -> io::Result<u64> {
    let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
    let mut file = File::from(fs::openat(inside, name, flags, Mode::from_raw_mode(0o666))?);
    let (least, most) = folder.kind.sizes();
    let mut dice =
        fastrand::Rng::with_seed(SEED ^ fnv(folder.path.as_os_str().as_encoded_bytes()) ^ number << 32);
    let bytes = dice.u64(least..=most);
    let mut left = bytes;
    while left > 0 {
        let length = (left as usize).min(noise.len());
        let begin = dice.usize(0..=noise.len() - length);
        let piece = &mut noise[begin..begin + length];
        // A mark of its own at the front makes each file and each piece different; the noise is put back
        // after.
        let mark = dice.u128(..).to_le_bytes();
        let marked = length.min(mark.len());
        let mut kept = [0; 16];
        kept[..marked].copy_from_slice(&piece[..marked]);
        piece[..marked].copy_from_slice(&mark[..marked]);
        let written = file.write_all(piece);
        piece[..marked].copy_from_slice(&kept[..marked]);
        written?;
        left -= length as u64;
    }
    fs::futimens(&file, &stamp(number))?;
    Ok(bytes)
}

/// Returns random bytes, the same every time.
fn noise() -> Vec<u8> {
    let mut noise = vec![0; NOISE_BYTES];
    fastrand::Rng::with_seed(SEED).fill(&mut noise);
    noise
}

/// FNV-1a: names to numbers, the same in every version of every library.
fn fnv(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}
