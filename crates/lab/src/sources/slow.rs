//! A disk made slow: a file system on a loop device that the kernel's block throttle holds to a rate, and
//! that answers reads late.
//!
//! The latency is `late`'s part; where that cannot be had the disk has its rate alone, and says so. Start at
//! [`SlowDisk::over`].

use super::late::Late;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// The document's copier wrote 155 MB and 3,175 files a second on its disk behind a network.
const BYTES_PER_S: u64 = 160_000_000;
const READS_PER_S: u64 = 3_200;
/// `cp` took 677 µs there for each file of 4 KB, one after another: a read or two, and what it does by
/// itself.
const READ_TAKES: Duration = Duration::from_micros(400);
/// Where the throttle of cgroups' first version stands for the whole machine.
const THROTTLE: &str = "/sys/fs/cgroup/blkio";

/// A slow disk over a folder. When it goes, the folder is what it was before.
pub(super) struct SlowDisk {
    folder: PathBuf,
    image: PathBuf,
    /// As the kernel's block layer calls it.
    device: String,
    /// The image's latency, or why it has none.
    late: Result<Late, String>,
}

impl SlowDisk {
    /// Puts a new ext4 with this room over a folder; it is not slow yet.
    ///
    /// # Errors
    /// Why no slow disk can be had here, as a clause.
    pub(super) fn over(folder: &Path, bytes: u64, files: u64) -> Result<SlowDisk, String> {
        /// ext4 makes an inode for every 16 KiB.
        const BYTES_PER_INODE: u64 = 16 << 10;
        if !rustix::process::geteuid().is_root() {
            return Err("a slow disk is emulated on a loop device, and mounting one needs root".to_owned());
        }
        if !Path::new(THROTTLE).join("blkio.throttle.read_bps_device").exists() {
            return Err(format!(
                "a slow disk is emulated by the block throttle of cgroups' first version, which is not at {THROTTLE}"
            ));
        }
        let image = folder.with_extension("img");
        let late = Err("it does not exist yet".to_owned());
        // From here on what is there is removed whatever happens.
        let mut disk = SlowDisk { folder: folder.to_owned(), image, device: String::new(), late };
        let room = bytes.max(files * BYTES_PER_INODE * 5 / 4) + (256 << 20);
        fs::File::create(&disk.image)
            .and_then(|file| file.set_len(room))
            .map_err(|error| format!("create {}: {error}", disk.image.display()))?;
        // Not lazily: else the kernel goes on making it while it is measured.
        let options = ["-q", "-F", "-E", "lazy_itable_init=0,lazy_journal_init=0"];
        run(Command::new("mkfs.ext4").args(options).arg(&disk.image))?;
        disk.late = Late::over(&disk.image);
        // Direct: a request of the file system's is one of the device's, and many are under way at once.
        let direct = if disk.late.is_ok() { "on" } else { "off" };
        let made = run(Command::new("losetup")
            .args(["--find", "--show", &format!("--direct-io={direct}")])
            .arg(&disk.image))?;
        let device = made.trim();
        let mounted = run(Command::new("mount").arg(device).arg(folder));
        // It goes when it is unmounted, or at once.
        let _ = run(Command::new("losetup").args(["--detach", device]));
        mounted?;
        let device = fs::metadata(folder).map_err(|error| format!("look at the loop device: {error}"))?.dev();
        disk.device = format!("{}:{}", rustix::fs::major(device), rustix::fs::minor(device));
        Ok(disk)
    }

    /// Makes it slow.
    ///
    /// # Errors
    /// The throttle refuses.
    pub(super) fn slow_down(&mut self) -> Result<(), String> {
        self.throttle(BYTES_PER_S, READS_PER_S)
            .map_err(|error| format!("hold {} down by {THROTTLE}: {error}", self.device))?;
        if let Ok(late) = &self.late {
            late.set(READ_TAKES);
        }
        Ok(())
    }

    /// Returns what it is, for the scale of a figure.
    pub(super) fn told(&self) -> String {
        let latency = match &self.late {
            Ok(_) => format!("each after {} ms", READ_TAKES.as_secs_f64() * 1e3),
            Err(why) => format!("without a latency, so waiting cannot make a difference ({why})"),
        };
        let rate = BYTES_PER_S / 1_000_000;
        format!("ext4 on a loop device held to {rate} MB/s and {READS_PER_S} reads a second, {latency}")
    }

    /// 0 is no limit.
    fn throttle(&self, bytes_per_s: u64, reads_per_s: u64) -> io::Result<()> {
        let rules = [
            ("read_bps_device", bytes_per_s),
            ("write_bps_device", bytes_per_s),
            ("read_iops_device", reads_per_s),
        ];
        rules.iter().try_for_each(|(file, limit)| {
            let path = format!("{THROTTLE}/blkio.throttle.{file}");
            fs::write(path, format!("{} {limit}", self.device))
        })
    }
}

impl Drop for SlowDisk {
    fn drop(&mut self) {
        if !self.device.is_empty() {
            // A rule for a device that does not exist limits nothing, so what fails here does no harm; the
            // device goes next.
            let _ = self.throttle(0, 0);
        }
        if let Ok(late) = &self.late {
            late.set(Duration::ZERO);
        }
        // Fails only if it was not mounted.
        let _ = run(Command::new("umount").arg("--quiet").arg(&self.folder));
        self.late = Err("it was removed".to_owned());
        let _ = fs::remove_file(&self.image);
    }
}

/// Runs a command to its end and gives back what it printed; a failure is told in its own words.
fn run(command: &mut Command) -> Result<String, String> {
    let program = command.get_program().to_string_lossy().into_owned();
    match command.output() {
        Ok(output) if output.status.success() => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
        Ok(output) => Err(format!("{program}: {}", String::from_utf8_lossy(&output.stderr).trim())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Err(format!("{program} is not installed")),
        Err(error) => Err(format!("{program}: {error}")),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_slow_disk_is_held_down_while_it_is_there_and_nothing_of_it_is_left() {
        let scratch = tempfile::tempdir().unwrap();
        let folder = scratch.path().join("folder");
        fs::create_dir(&folder).unwrap();
        let mut disk = match SlowDisk::over(&folder, 1 << 20, 16) {
            Ok(disk) => disk,
            Err(why) => {
                eprintln!("skipped: no slow disk can be had here: {why}");
                return;
            }
        };
        let rules = || fs::read_to_string(format!("{THROTTLE}/blkio.throttle.read_bps_device")).unwrap();
        let ours = format!("{} {BYTES_PER_S}", disk.device);
        let mounts = || fs::read_to_string("/proc/self/mounts").unwrap();
        let path = folder.display().to_string();
        disk.slow_down().unwrap();
        assert!(rules().lines().any(|rule| rule == ours), "{}", rules());
        assert!(mounts().lines().any(|line| line.contains(&format!(" {path} ext4 "))), "{}", mounts());
        assert_eq!(mounts().contains(&format!(" {path}.img fuse ")), disk.late.is_ok(), "{}", mounts());
        assert!(disk.told().contains("160 MB/s"), "{}", disk.told());
        fs::write(folder.join("file"), "content").unwrap();
        assert_eq!(fs::read_to_string(folder.join("file")).unwrap(), "content");
        drop(disk);
        assert!(!rules().lines().any(|rule| rule == ours), "{}", rules());
        assert!(!mounts().contains(&path), "{}", mounts());
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 0);
        assert_eq!(fs::read_dir(scratch.path()).unwrap().count(), 1);
    }
}
