//! `cargo xtask bench copy-memory`: the most memory a copy of a million files takes, engine by engine.
//!
//! Three trees of as many empty files: all in one directory, spread over a thousand, and in three hundred
//! directories each of which is in the one before. They are made in a file system in memory where this may
//! mount one, so that a million files take seconds, and go with it. What is measured is what the program has
//! resident at most (VmHWM), not how long it takes; buffers for contents, which empty files do not fill, are
//! in `bench copy`'s column.

use super::run;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

/// What the copier promises.
const MOST_BYTES: u64 = 64 << 20;

const SHAPES: &[&str] = &["flat", "wide", "deep"];

/// A name, and the words behind `ringroad cp --quiet`.
const ENGINES: &[(&str, &[&str])] = &[
    ("auto, -r", &["-r"]),
    ("auto, -a with a manifest", &["-a", "--manifest", "MANIFEST"]),
    ("threads", &["-r", "--engine", "threads"]),
    ("threads, 32 of them", &["-r", "--engine", "threads", "--jobs", "32"]),
    ("ring", &["-r", "--engine", "ring"]),
    ("ring-splice", &["-r", "--engine", "ring-splice"]),
];

const USAGE: &str = "usage: cargo xtask bench copy-memory [OPTION VALUE]...
  --files N        of each tree (default: 1000000)
  --time-limit T   begin no copy after T seconds (default: 240)
  --dir DIR        where a file system in memory is mounted, or the trees are made (default: target/bench-memory)
  --out DIR        gets copy-memory.md (default: docs/results)";

struct Plan {
    files: u64,
    limit: Duration,
    dir: PathBuf,
    out: PathBuf,
}

fn parse(root: &Path, words: &[String]) -> Result<Plan, String> {
    let mut plan = Plan {
        files: 1_000_000,
        limit: Duration::from_secs(240),
        dir: root.join("target/bench-memory"),
        out: root.join("docs/results"),
    };
    for pair in words.chunks(2) {
        let [option, value] = pair else { return Err(format!("{}: needs a value", pair.concat())) };
        let number = || value.parse::<u64>().map_err(|_| format!("{option} {value}: a number is needed"));
        match option.as_str() {
            "--files" => plan.files = number()?.max(1),
            "--time-limit" => plan.limit = Duration::from_secs(number()?),
            "--dir" => plan.dir = value.into(),
            "--out" => plan.out = value.into(),
            _ => return Err(format!("{option}: not known")),
        }
    }
    Ok(plan)
}

/// Runs it and leaves the table; exit code 1 when a copy failed or took more than it may.
pub(crate) fn bench(root: &Path, words: &[String]) -> ExitCode {
    let plan = match parse(root, words) {
        Ok(plan) => plan,
        Err(mistake) => {
            eprintln!("bench copy-memory: {mistake}\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    let done = crate::release_binary(root).and_then(|ringroad| {
        fs::create_dir_all(&plan.dir)?;
        let dir = plan.dir.canonicalize()?;
        let mounted = Mounted::on(&dir);
        let done = measure(&ringroad, &plan, &dir, mounted.is_some());
        drop(mounted);
        fs::remove_dir(&dir).and(done)
    });
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("bench copy-memory: {error}");
            ExitCode::FAILURE
        }
    }
}

/// A file system in memory, until it is dropped.
struct Mounted(PathBuf);

impl Mounted {
    fn on(dir: &Path) -> Option<Mounted> {
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", "size=3g,nr_inodes=0", "ringroad-memory"]).arg(dir);
        let done = mount.output().is_ok_and(|output| output.status.success());
        done.then(|| Mounted(dir.to_path_buf()))
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if !Command::new("umount").arg(&self.0).status().is_ok_and(|status| status.success()) {
            eprintln!("bench copy-memory: {} is still mounted: umount it", self.0.display());
        }
    }
}

fn measure(ringroad: &Path, plan: &Plan, dir: &Path, memory: bool) -> io::Result<bool> {
    let host = ringroad_host::facts::facts();
    let on = if memory { "in memory (tmpfs)" } else { "on the root disk" };
    let mut text = format!(
        "# Memory of a copy\n\n`cargo xtask bench copy-memory`: the most `ringroad cp` had resident (VmHWM), in MiB, while it \
         copied {} empty files {on}: all in one directory (flat), over a thousand (wide), and down three hundred, each in the \
         one before (deep). At most {} MiB are promised.\n\nLinux {}, {} CPUs.\n\n",
        plan.files,
        MOST_BYTES >> 20,
        host.kernel.unwrap_or_default(),
        host.cpus_online.unwrap_or_default(),
    );
    text.push_str(&format!("| | {} |\n|---|---|---|---|\n", SHAPES.join(" | ")));
    let begun = Instant::now();
    let mut cells: Vec<Vec<String>> = ENGINES.iter().map(|_| Vec::new()).collect();
    let mut well = true;
    for shape in SHAPES {
        let source = dir.join("source");
        eprintln!("{shape}: making {} files", plan.files);
        make(shape, plan.files, &source)?;
        for ((name, words), row) in ENGINES.iter().zip(&mut cells) {
            if begun.elapsed() > plan.limit {
                row.push("not reached".to_string());
                continue;
            }
            let target = dir.join("target");
            let manifest = dir.join("manifest");
            let mut copy = Command::new(ringroad);
            copy.args(["cp", "--quiet", "-T"]);
            for word in *words {
                copy.arg(if *word == "MANIFEST" { manifest.as_path() } else { Path::new(word) });
            }
            let mut child = copy.arg(&source).arg(&target).spawn()?;
            let (status, peak_bytes) = run::wait_watching(&mut child)?;
            let copied = run::contents(&target)?.0;
            eprintln!("  {name}: {:.1} MiB, {copied} files, {status}", mib(peak_bytes));
            well &= status.success() && copied == plan.files && peak_bytes <= MOST_BYTES;
            let whole = status.success() && copied == plan.files;
            row.push(if whole { format!("{:.1}", mib(peak_bytes)) } else { format!("failed: {status}") });
            for left in [&target, &manifest] {
                remove(left)?;
            }
        }
        remove(&source)?;
    }
    for ((name, _), row) in ENGINES.iter().zip(&cells) {
        text.push_str(&format!("| {name} | {} |\n", row.join(" | ")));
    }
    print!("{text}");
    fs::create_dir_all(&plan.out)?;
    fs::write(plan.out.join("copy-memory.md"), text)?;
    Ok(well)
}

fn mib(bytes: u64) -> f64 {
    bytes as f64 / (1 << 20) as f64
}

/// Makes a tree. Its longest path can still be named.
fn make(shape: &str, files: u64, root: &Path) -> io::Result<()> {
    use rustix::fs::{CWD, Mode, OFlags, mkdirat, openat};
    let folder = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let file = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    fs::create_dir(root)?;
    let root = openat(CWD, root, folder, Mode::empty())?;
    let folders = files.min(match shape {
        "flat" => 1,
        "wide" => 1000,
        _ => 300,
    });
    let mut above = rustix::io::dup(&root)?;
    for nth in 0..folders {
        let inside = if shape == "flat" {
            rustix::io::dup(&root)?
        } else {
            let name = if shape == "deep" { "d".to_string() } else { format!("folder-{nth:04}") };
            mkdirat(&above, &*name, Mode::from_raw_mode(0o755))?;
            openat(&above, &*name, folder, Mode::empty())?
        };
        for number in files * nth / folders..files * (nth + 1) / folders {
            // A name as long as those of data sets.
            let made = openat(&inside, format!("n{number:016}.JPEG"), file, Mode::from_raw_mode(0o644))?;
            drop(made);
        }
        if shape == "deep" {
            above = inside;
        }
    }
    Ok(())
}

/// Removes a tree or a file, if it is there.
fn remove(tree: &Path) -> io::Result<()> {
    match fs::symlink_metadata(tree) {
        Err(why) if why.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(why) => Err(why),
        Ok(facts) if facts.is_dir() => fs::remove_dir_all(tree),
        Ok(_) => fs::remove_file(tree),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn each_shape_has_as_many_files_as_were_asked_for() {
        let folder = tempfile::tempdir().unwrap();
        for shape in SHAPES {
            let tree = folder.path().join(shape);
            make(shape, 30, &tree).unwrap();
            assert_eq!(run::contents(&tree).unwrap(), (30, 0), "{shape}");
            remove(&tree).unwrap();
            assert!(!tree.exists());
        }
    }

    #[test]
    fn options_are_read_and_unknown_ones_are_told() {
        let words = |words: &[&str]| words.iter().map(|word| word.to_string()).collect::<Vec<_>>();
        let plan = parse(Path::new("/r"), &words(&["--files", "7", "--time-limit", "9"])).unwrap();
        assert_eq!((plan.files, plan.limit), (7, Duration::from_secs(9)));
        for (wrong, named) in
            [(&["--files"][..], "--files"), (&["--files", "x"], "x"), (&["--what", "1"], "--what")]
        {
            assert!(parse(Path::new("/r"), &words(wrong)).is_err_and(|told| told.contains(named)));
        }
    }
}
