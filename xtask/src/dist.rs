//! `cargo xtask dist [ARCH]` and `cargo xtask deb [ARCH]`: the files of a release.
//!
//! `dist` links one static binary with musl, which supports static linking: a statically linked glibc still
//! loads its resolver at run time. It runs the binary in an otherwise empty root, then packs it with its
//! manual pages and completions into an archive with a checksum. For an architecture other than the host's,
//! the C and assembly of two dependencies need a cross compiler, and the binary runs under QEMU's user mode.
//! `deb` makes a Debian package of the same binary.

use rustix::process::{Pid, Signal};
use std::fs;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Output, Stdio};
use std::time::Duration;

/// Architectures of a release, as Rust names them, with the compiler that Debian ships for each.
const ARCHITECTURES: [(&str, &str); 2] =
    [("x86_64", "x86_64-linux-gnu-gcc"), ("aarch64", "aarch64-linux-gnu-gcc")];

/// The compiler with musl's headers, for the host's architecture.
const MUSL: &str = "musl-gcc";

/// Shells with completions in the archive, and the name of each file.
const COMPLETIONS: [(&str, &str); 3] =
    [("bash", "ringroad.bash"), ("zsh", "_ringroad"), ("fish", "ringroad.fish")];

pub(crate) fn dist(root: &Path, words: &[String]) -> ExitCode {
    ended("dist", Release::of(root, words).and_then(|release| release.archive()))
}

pub(crate) fn deb(root: &Path, words: &[String]) -> ExitCode {
    ended("deb", Release::of(root, words).and_then(|release| release.package()))
}

fn ended(chore: &str, made: io::Result<PathBuf>) -> ExitCode {
    match made {
        Ok(file) => {
            let bytes = fs::metadata(&file).map_or(0, |about| about.len());
            println!("{chore}: {} ({:.1} MiB)", file.display(), bytes as f64 / f64::from(1 << 20));
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("{chore}: {error}");
            ExitCode::FAILURE
        }
    }
}

/// A release for one architecture.
struct Release<'a> {
    root: &'a Path,
    architecture: &'static str,
    compiler: &'static str,
    /// The `target` folder.
    folder: PathBuf,
}

impl<'a> Release<'a> {
    fn of(root: &'a Path, words: &[String]) -> io::Result<Release<'a>> {
        let wanted = words.first().map_or(std::env::consts::ARCH, String::as_str);
        let Some((architecture, compiler)) = ARCHITECTURES.into_iter().find(|(name, _)| *name == wanted)
        else {
            let known = ARCHITECTURES.map(|(name, _)| name).join(", ");
            return Err(io::Error::other(format!("no release for {wanted:?} (there are: {known})")));
        };
        let folder = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from);
        Ok(Release { root, architecture, compiler, folder: root.join(folder) })
    }

    fn is_foreign(&self) -> bool {
        self.architecture != std::env::consts::ARCH
    }

    fn target(&self) -> String {
        format!("{}-unknown-linux-musl", self.architecture)
    }

    /// Builds, tests and packs everything; returns the path of the archive.
    fn archive(&self) -> io::Result<PathBuf> {
        let binary = self.binary()?;
        let dist = self.folder.join("dist");
        let name = format!("ringroad-{}-{}-linux", env!("CARGO_PKG_VERSION"), self.architecture);
        let tree = dist.join(&name);
        if tree.exists() {
            fs::remove_dir_all(&tree)?;
        }
        fs::create_dir_all(&tree)?;
        fs::copy(&binary, tree.join("ringroad"))?;
        if !self.is_foreign() {
            // The place where the Dockerfile and scripts expect the host's binary.
            fs::copy(&binary, dist.join("ringroad"))?;
        }
        for file in ["README.md", "LICENSE-MIT", "LICENSE-APACHE"] {
            fs::copy(self.root.join(file), tree.join(file))?;
        }
        self.documents(&binary, &tree)?;
        let archive = format!("{name}.tar.gz");
        // Sorted and without times and owners of this machine, so that equal sources give equal bytes.
        let mut tar = Command::new("tar");
        tar.current_dir(&dist).args([
            "--sort=name",
            "--mtime=@0",
            "--owner=0",
            "--group=0",
            "--numeric-owner",
        ]);
        done(tar.args(["--use-compress-program=gzip -n", "-cf", &archive, &name]))?;
        let sums = Command::new("sha256sum").current_dir(&dist).arg(&archive).output()?;
        expect("sha256sum", &sums, sums.status.success())?;
        fs::write(dist.join(format!("{archive}.sha256")), &sums.stdout)?;
        Ok(dist.join(archive))
    }

    /// Makes a Debian package of the static binary with cargo-deb. `crates/cli/Cargo.toml` lists its
    /// contents.
    fn package(&self) -> io::Result<PathBuf> {
        let binary = self.binary()?;
        let documents = documents_of(self.root);
        if documents.exists() {
            fs::remove_dir_all(&documents)?;
        }
        self.documents(&binary, &documents)?;
        let mut deb = Command::new(env!("CARGO"));
        deb.current_dir(self.root).args(["deb", "--package", "ringroad-cli", "--no-build", "--no-strip"]);
        deb.args(["--target", &self.target()]).stderr(Stdio::inherit());
        let said = deb.output()?;
        if !said.status.success() {
            let hint = "cargo deb failed; if it is not installed: cargo install cargo-deb --locked";
            return Err(io::Error::other(hint));
        }
        let path = String::from_utf8_lossy(&said.stdout).lines().last().map(PathBuf::from);
        path.ok_or_else(|| io::Error::other("cargo deb names no file"))
    }

    /// Builds and checks the static binary.
    fn binary(&self) -> io::Result<PathBuf> {
        let target = self.target();
        let variable = target.replace('-', "_");
        let mut build = Command::new(env!("CARGO"));
        build
            .current_dir(self.root)
            .args(["build", "--release", "--package", "ringroad-cli", "--target", &target])
            // Flags for the host's linker may not suit another one.
            .env_remove("RUSTFLAGS");
        let linker = if self.is_foreign() { self.compiler } else { "cc" };
        let compiler = self.c_compiler();
        build.env(format!("CC_{variable}"), compiler);
        // Rust's target includes musl.
        build.env(format!("CARGO_TARGET_{}_LINKER", variable.to_uppercase()), linker);
        if !build.status()?.success() {
            return Err(io::Error::other(needs(compiler, &target)));
        }
        let binary = self.folder.join(&target).join("release/ringroad");
        is_static(&binary)?;
        match self.emulator()? {
            Some(emulator) => runs_alone(&binary, emulator.as_deref())?,
            None => println!(
                "dist: not tried: this host cannot run {} binaries (install qemu-user-static)",
                self.architecture
            ),
        }
        Ok(binary)
    }

    /// Returns the compiler for the C of the dependencies.
    ///
    /// A compiler with the headers of glibc works only on some systems. With the headers of glibc 2.38 and
    /// newer the C code calls `__isoc23_strtol` for `strtol`. If the compiler sets `_FORTIFY_SOURCE` by
    /// default, as Ubuntu's does, it calls `__memcpy_chk` for `memcpy`. musl has neither. Other functions
    /// that musl lacks (`fopen64`, in aws-lc's files) are not linked.
    fn c_compiler(&self) -> &'static str {
        if self.is_foreign() {
            return self.compiler;
        }
        let mut version = Command::new(MUSL);
        version.arg("--version").stdout(Stdio::null()).stderr(Stdio::null());
        if version.status().is_ok_and(|status| status.success()) { MUSL } else { "cc" }
    }

    /// Returns the program that runs the binary here, if it needs one. `None` if the binary cannot run.
    #[allow(clippy::option_option, reason = "it may need none, and there may be none")]
    fn emulator(&self) -> io::Result<Option<Option<PathBuf>>> {
        if !self.is_foreign() {
            return Ok(Some(None));
        }
        let emulator = Path::new("/usr/bin").join(format!("qemu-{}-static", self.architecture));
        Ok(emulator.try_exists()?.then_some(Some(emulator)))
    }

    /// Writes the manual pages and completions below `tree`, as the binary prints them.
    fn documents(&self, binary: &Path, tree: &Path) -> io::Result<()> {
        let program = || match self.emulator()? {
            Some(None) => Ok(Command::new(binary)),
            Some(Some(emulator)) => {
                let mut command = Command::new(emulator);
                command.arg(binary);
                Ok(command)
            }
            // The documents are equal on every architecture.
            None => {
                let mut command = Command::new(env!("CARGO"));
                command.current_dir(self.root).args(["run", "--quiet", "--package", "ringroad-cli", "--"]);
                Ok::<_, io::Error>(command)
            }
        };
        done(program()?.arg("man").arg(tree.join("man")))?;
        fs::create_dir_all(tree.join("completions"))?;
        for (shell, file) in COMPLETIONS {
            let script = program()?.args(["completions", shell]).output()?;
            expect(&format!("completions {shell}"), &script, script.status.success())?;
            fs::write(tree.join("completions").join(file), &script.stdout)?;
        }
        Ok(())
    }
}

/// Returns the folder of the package's documents. The file list for cargo-deb in `crates/cli/Cargo.toml` has
/// this path, even if `CARGO_TARGET_DIR` moves all other files.
fn documents_of(root: &Path) -> PathBuf {
    root.join("target/dist/documents")
}

/// Returns what a failed build may lack. With glibc's headers, `cc` works only on some systems.
fn needs(compiler: &str, target: &str) -> String {
    let musl = if compiler == "cc" { " (or musl-gcc, of the package musl-tools)" } else { "" };
    format!("cargo build failed; it needs {compiler}{musl} and: rustup target add {target}")
}

/// Runs a command, which must succeed.
fn done(command: &mut Command) -> io::Result<()> {
    let status = command.status()?;
    if status.success() { Ok(()) } else { Err(io::Error::other(format!("{command:?}: {status}"))) }
}

/// Checks that the binary needs no loader: its program headers name no interpreter (elf(5)).
fn is_static(binary: &Path) -> io::Result<()> {
    const INTERPRETER: u32 = 3;
    let bytes = fs::read(binary)?;
    let number = |at: usize, length: usize| {
        let field = bytes.get(at..at + length).unwrap_or_default();
        field.iter().rev().fold(0u64, |number, byte| number << 8 | u64::from(*byte))
    };
    if !bytes.starts_with(b"\x7fELF\x02\x01") {
        return Err(io::Error::other("not a little-endian 64-bit ELF file"));
    }
    let (start, size, count) = (number(32, 8) as usize, number(54, 2) as usize, number(56, 2) as usize);
    let kinds = (0..count).map(|index| number(start + index * size, 4) as u32);
    if count == 0 || kinds.into_iter().any(|kind| kind == INTERPRETER) {
        return Err(io::Error::other("the binary asks for a loader: it is not static"));
    }
    Ok(())
}

/// Runs the verbs in a root that holds only the binary and two files: no libraries, no /proc, no /dev.
fn runs_alone(binary: &Path, emulator: Option<&Path>) -> io::Result<()> {
    let root = tempfile::tempdir()?;
    fs::copy(binary, root.path().join("ringroad"))?;
    if let Some(emulator) = emulator {
        fs::copy(emulator, root.path().join("emulator"))?;
    }
    symlink("ringroad", root.path().join("cp"))?;
    fs::write(root.path().join("file"), "alone\n")?;
    let version = alone(root.path(), &["/ringroad", "--version"])?;
    expect("--version", &version, version.stdout.starts_with(b"ringroad "))?;
    let doctor = alone(root.path(), &["/ringroad", "doctor", "--json"])?;
    let found: serde_json::Value = serde_json::from_slice(&doctor.stdout).map_err(io::Error::other)?;
    expect("doctor", &doctor, doctor.status.success() && found["chosen"].is_string())?;
    let cat = alone(root.path(), &["/ringroad", "cat", "-q", "/file"])?;
    expect("cat", &cat, cat.stdout == b"alone\n")?;
    let copy = alone(root.path(), &["/cp", "/file", "/copy"])?;
    expect("cp", &copy, copy.status.success() && fs::read(root.path().join("copy"))? == b"alone\n")?;
    let chosen = found["chosen"].as_str().unwrap_or_default();
    serves_alone(root.path(), &format!("engine-{chosen}"))?;
    println!("dist: doctor, cat, cp and lab server run in an empty root: driver {chosen}");
    Ok(())
}

/// Starts `lab server`, sends one request, and stops it with SIGTERM.
fn serves_alone(root: &Path, model: &str) -> io::Result<()> {
    let words =
        ["/ringroad", "lab", "server", "--model", model, "--protocol", "http", "--listen", "127.0.0.1:0"];
    let mut server = in_root(root, &words).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    let asked = ask(&mut server);
    // `unshare` replaced itself with the server, so this process id is the server's.
    let pid = Pid::from_child(&server);
    rustix::process::kill_process(pid, Signal::TERM)?;
    let output = server.wait_with_output()?;
    let answer = match asked {
        Ok(answer) => answer,
        Err(error) => {
            expect("lab server", &output, false)?;
            return Err(error);
        }
    };
    expect("lab server", &output, output.status.success() && answer.contains("<h1>Hello World</h1>"))
}

/// Waits for the line with the address, and requests a page from it.
fn ask(server: &mut Child) -> io::Result<String> {
    let output = server.stdout.as_mut().ok_or_else(|| io::Error::other("no output"))?;
    let mut line = String::new();
    BufReader::new(output).read_line(&mut line)?;
    let address = line
        .trim_end()
        .strip_prefix("listening on ")
        .ok_or_else(|| io::Error::other(format!("the server printed {line:?} instead of its address")))?;
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(Duration::from_secs(60)))?;
    stream.write_all(b"GET / HTTP/1.1\r\nHost: alone\r\n\r\n")?;
    let mut answer = Vec::new();
    let mut piece = [0; 1024];
    while !answer.ends_with(b"</h1>") {
        match stream.read(&mut piece)? {
            0 => break,
            bytes => answer.extend_from_slice(&piece[..bytes]),
        }
    }
    Ok(String::from_utf8_lossy(&answer).into_owned())
}

fn expect(what: &str, output: &Output, right: bool) -> io::Result<()> {
    if right {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(io::Error::other(format!("{what}, in an empty root: {}: {said}", output.status)))
}

fn alone(root: &Path, words: &[&str]) -> io::Result<Output> {
    in_root(root, words).output()
}

/// Runs `words` with `root` as its root. A user without privileges gets them in a user namespace first.
fn in_root(root: &Path, words: &[&str]) -> Command {
    let mut command = Command::new("unshare");
    if !rustix::process::geteuid().is_root() {
        command.arg("--map-root-user");
    }
    command.arg("--root").arg(root);
    if root.join("emulator").exists() {
        // QEMU passes `-0` on as the program's name, which decides whether it is `cp`.
        command.args(["/emulator", "-0"]).args(words.first());
    }
    command.args(words).env_clear();
    command
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn the_documents_of_the_package_are_where_its_list_of_files_has_them() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let list = fs::read_to_string(root.join("crates/cli/Cargo.toml")).unwrap();
        let folders: Vec<&str> = list
            .lines()
            .filter_map(|line| line.trim().strip_prefix("[\"../../")?.split_once("\", ")?.0.rsplit_once('/'))
            .filter_map(|(folder, _)| folder.starts_with("target/").then_some(folder))
            .collect();
        assert_eq!(folders.len(), 4, "{folders:?}");
        assert!(
            folders.iter().all(|folder| root.join(folder).starts_with(documents_of(root))),
            "{folders:?}"
        );
    }

    #[test]
    fn the_hint_of_a_failed_build_names_another_compiler_only_beside_the_usual_one() {
        let hint = |compiler| needs(compiler, "x86_64-unknown-linux-musl");
        let end = "and: rustup target add x86_64-unknown-linux-musl";
        assert_eq!(hint(MUSL), format!("cargo build failed; it needs musl-gcc {end}"));
        assert!(hint("cc").contains("it needs cc (or musl-gcc, of the package musl-tools) and: "));
        assert!(hint("aarch64-linux-gnu-gcc").contains("it needs aarch64-linux-gnu-gcc and: "));
    }
}
