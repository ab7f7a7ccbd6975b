//! Where trees are copied: the root disk, memory, and file systems made for the run on images that go with it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The places there are.
pub(super) const NAMES: &[&str] = &["disk", "tmpfs", "ext4", "xfs", "btrfs"];

/// Room for two of the biggest trees (a mixed one has 6 GB at scale 1), and for what file systems need.
const BYTES_AT_SCALE_1: f64 = 20e9;
/// XFS wants 300 MB, whatever is put into it.
const BYTES_LEAST: u64 = 1 << 30;

/// A folder on one file system; what was mounted for it is unmounted with it.
#[derive(Debug)]
pub(super) struct Place {
    name: String,
    path: PathBuf,
    mounted: bool,
    image: Option<PathBuf>,
}

impl Place {
    /// Makes the place, or says why it cannot be had here.
    pub(super) fn make(name: &str, dir: &Path, scale: f64) -> Result<Place, String> {
        let path = dir.join(name);
        let failed = |what: &str, error: std::io::Error| format!("{what}: {error}");
        fs::create_dir_all(&path).map_err(|error| failed("create a folder", error))?;
        let path = path.canonicalize().map_err(|error| failed("find the folder", error))?;
        let mut place = Place { name: name.to_string(), path, mounted: false, image: None };
        if name == "disk" {
            return Ok(place);
        }
        if !rustix::process::geteuid().is_root() {
            return Err("mounting needs root".to_string());
        }
        let bytes = (BYTES_AT_SCALE_1 * scale) as u64 + BYTES_LEAST;
        if name == "tmpfs" {
            run(Command::new("mount")
                .args(["-t", "tmpfs", "-o", &format!("size={bytes}"), "tmpfs"])
                .arg(&place.path))?;
        } else {
            let image = dir.join(format!("{name}.img"));
            let file = fs::File::create(&image).map_err(|error| failed("create an image", error))?;
            file.set_len(bytes).map_err(|error| failed("size an image", error))?;
            place.image = Some(image.clone());
            let force = if name == "ext4" { "-F" } else { "-f" };
            run(Command::new(format!("mkfs.{name}")).args(["-q", force]).arg(&image))?;
            run(Command::new("mount").args(["-o", "loop"]).arg(&image).arg(&place.path))?;
        }
        place.mounted = true;
        Ok(place)
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Why a temperature makes no sense here, if it makes none.
    pub(super) fn refuses(&self, cold: bool) -> Option<&'static str> {
        if cold && self.name == "tmpfs" {
            Some("memory is never cold")
        } else if cold && !rustix::process::geteuid().is_root() {
            Some("dropping caches needs root")
        } else {
            None
        }
    }

    /// Type and options of the mount this folder is on, from the kernel.
    pub(super) fn description(&self) -> String {
        let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
        let fields = mounts.lines().map(|line| line.split(' ').collect::<Vec<_>>());
        // The longest mount point that the folder is under; the last of equal ones is on top.
        let over = fields.filter(|fields| fields.get(1).is_some_and(|point| self.path.starts_with(point)));
        let best = over.max_by_key(|fields| fields.get(1).map_or(0, |point| point.len()));
        best.and_then(|fields| Some(format!("{} {}", fields.get(2)?, fields.get(3)?))).unwrap_or_default()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if self.mounted {
            let _ = run(Command::new("umount").arg(&self.path));
        }
        if let Some(image) = &self.image {
            let _ = fs::remove_file(image);
        }
    }
}

/// Runs a command to its end; a failure is told in its own words.
fn run(command: &mut Command) -> Result<(), String> {
    let program = command.get_program().to_string_lossy().into_owned();
    match command.output() {
        Ok(output) if output.status.success() => Ok(()),
        Ok(output) => Err(format!("{program}: {}", String::from_utf8_lossy(&output.stderr).trim())),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            Err(format!("{program}: not installed"))
        }
        Err(error) => Err(format!("{program}: {error}")),
    }
}
