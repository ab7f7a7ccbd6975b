//! PHP programs that are servers (Swoole's classes): how they are started, and where they want to listen.
//!
//! The classes are `runners/php/ringroad.php` and the files beside it, which this program carries. A process
//! of PHP reads them from a temporary folder before the program itself.

use crate::run_folder::RunFolder;
use crate::settings::{Dispatch, Settings};
use command_fds::{CommandFdExt, FdMapping};
use rustix::pipe::PipeFlags;
use std::ffi::OsString;
use std::fs::{File, Permissions};
use std::io::{self, Read};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// The file that reads the others.
const FIRST: &str = include_str!("../../../runners/php/ringroad.php");
/// Swoole's classes: the names of files without their ending, and what is in them.
const CLASSES: [(&str, &str); 19] = [
    ("constants", include_str!("../../../runners/php/swoole/constants.php")),
    ("printed", include_str!("../../../runners/php/swoole/printed.php")),
    ("loop", include_str!("../../../runners/php/swoole/loop.php")),
    ("os", include_str!("../../../runners/php/swoole/os.php")),
    ("coroutine", include_str!("../../../runners/php/swoole/coroutine.php")),
    ("event", include_str!("../../../runners/php/swoole/event.php")),
    ("shared", include_str!("../../../runners/php/swoole/shared.php")),
    ("process", include_str!("../../../runners/php/swoole/process.php")),
    ("system", include_str!("../../../runners/php/swoole/system.php")),
    ("socket", include_str!("../../../runners/php/swoole/socket.php")),
    ("websocket", include_str!("../../../runners/php/swoole/websocket.php")),
    ("http", include_str!("../../../runners/php/swoole/http.php")),
    ("http_client", include_str!("../../../runners/php/swoole/http_client.php")),
    ("client", include_str!("../../../runners/php/swoole/client.php")),
    ("rwp", include_str!("../../../runners/php/swoole/rwp.php")),
    ("listener", include_str!("../../../runners/php/swoole/listener.php")),
    ("manager", include_str!("../../../runners/php/swoole/manager.php")),
    ("server", include_str!("../../../runners/php/swoole/server.php")),
    ("functions", include_str!("../../../runners/php/swoole/functions.php")),
];
/// How long a program may take to say where it listens.
const PATIENCE: Duration = Duration::from_secs(20);

/// The classes as files, which are removed when the value is dropped.
#[derive(Debug)]
pub(crate) struct Classes {
    /// It has to be there.
    _folder: RunFolder,
    first: PathBuf,
}

impl Classes {
    /// Returns the file that a program needs before it.
    pub(crate) fn path(&self) -> &Path {
        &self.first
    }
}

/// Writes the classes to files that every user may read. PHP includes no file without a name: it looks up the
/// path of what it opens.
pub(crate) fn classes() -> io::Result<Classes> {
    let folder = RunFolder::new()?;
    let inner = folder.path().join("swoole");
    std::fs::create_dir(&inner)?;
    let first = folder.path().join("ringroad.php");
    let put = |path: &Path, text: &str| {
        std::fs::write(path, text)?;
        std::fs::set_permissions(path, Permissions::from_mode(0o444))
    };
    put(&first, FIRST)?;
    for (name, text) in CLASSES {
        put(&inner.join(format!("{name}.php")), text)?;
    }
    for path in [inner.as_path(), folder.path()] {
        std::fs::set_permissions(path, Permissions::from_mode(0o755))?;
    }
    Ok(Classes { _folder: folder, first })
}

/// Returns the command of a program.
pub(crate) fn command(php: Option<&Path>, file: &Path, classes: &Path) -> Command {
    let mut command = Command::new(php.unwrap_or(Path::new("php")));
    let mut prepend = OsString::from("auto_prepend_file=");
    prepend.push(classes);
    // What is printed goes to the log at once.
    command.args(["-d", "implicit_flush=1", "-d"]).arg(prepend).arg(file);
    command
}

/// Where a program wants to listen, and with how many workers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PhpServer {
    /// An address, a name, or `unix:` and a path.
    pub host: String,
    /// The port; 0: any.
    pub port: u16,
    /// `worker_num`.
    pub workers: usize,
    /// `max_request`; 0: no limit.
    pub max_requests: u64,
    /// What `dispatch_mode` is here, if the program has set one that is known.
    pub dispatch: Option<Dispatch>,
}

/// Asks a program where it wants to listen: it runs as far as its `start()`.
///
/// # Errors
/// It cannot be started, or starts no server; with what it printed last.
pub fn ask_php(settings: &Settings) -> Result<PhpServer, String> {
    let crate::Launch::Php { php, file, .. } = &settings.launch else {
        return Err("this is no PHP program".to_owned());
    };
    let failed = |why: &dyn std::fmt::Display| format!("{}: {why}", file.display());
    // PHP says so on its standard output, among everything else that programs print.
    std::fs::metadata(settings.directory.join(file)).map_err(|why| failed(&why))?;
    let asked = (|| {
        let classes = classes()?;
        let mut command = command(php.as_deref(), file, classes.path());
        let (told, tell) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC)?;
        command.current_dir(&settings.directory).env("RINGROAD_ASK", "3");
        command.envs(settings.env.iter().map(|(name, value)| (name, value)));
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        command
            .fd_mappings(vec![FdMapping { parent_fd: tell, child_fd: 3 }])
            .map_err(|why| io::Error::other(why.to_string()))?;
        let program = command.get_program().to_string_lossy().into_owned();
        let child = ringroad_host::process::tie_to_parent(&mut command).spawn();
        let child = child.map_err(|why| io::Error::new(why.kind(), format!("start {program}: {why}")))?;
        drop(command);
        io::Result::Ok((File::from(told), child, classes))
    })();
    let (mut told, mut child, _classes) = asked.map_err(|why| failed(&why))?;
    let (text, late) = wait(&mut told);
    // It has said what it was asked, or never will.
    let _ = child.kill();
    let mut printed = String::new();
    if let Some(mut stderr) = child.stderr.take() {
        // What is not UTF-8 is not shown.
        let _ = stderr.read_to_string(&mut printed);
    }
    let _ = child.wait();
    let answer: Option<serde_json::Value> = serde_json::from_str(&text).ok();
    let server = answer.as_ref().and_then(|answer| {
        Some(PhpServer {
            host: answer.get("host")?.as_str()?.to_owned(),
            port: u16::try_from(answer.get("port")?.as_u64()?).ok()?,
            workers: usize::try_from(answer.get("workers")?.as_u64()?).ok()?.clamp(1, 1024),
            max_requests: answer.get("max_requests").and_then(serde_json::Value::as_u64).unwrap_or(0),
            dispatch: answer.get("dispatch").and_then(serde_json::Value::as_u64).and_then(dispatch),
        })
    });
    server.ok_or_else(|| {
        let printed = printed.trim();
        let what = if late { "it did not start a server in time" } else { "it starts no server" };
        let hint = protocol_hint(
            &ringroad_host::input::read_text(&settings.directory.join(file)).unwrap_or_default(),
        );
        if printed.is_empty() {
            failed(&format!("{what} ({hint})"))
        } else {
            failed(&format!("{what}: {printed}\n({hint})"))
        }
    })
}

/// Which protocol a script that starts no server of Swoole's classes needs, by what stands in it.
fn protocol_hint(script: &str) -> &'static str {
    if script.contains("RoadRunner") {
        "a worker of RoadRunner needs --protocol goridge"
    } else {
        "a script that answers one request and ends needs --protocol fastcgi, a worker of RoadRunner --protocol \
         goridge"
    }
}

/// Returns how a worker is chosen in a mode of `dispatch_mode`. Those that have no counterpart (a function of
/// the program, streams) are not known.
fn dispatch(mode: u64) -> Option<Dispatch> {
    match mode {
        1 => Some(Dispatch::Turns),
        // A number that the program gives to a connection stays with it.
        2 | 5 => Some(Dispatch::Connection),
        3 => Some(Dispatch::Idle),
        4 => Some(Dispatch::Address),
        8..=10 => Some(Dispatch::Least),
        _ => None,
    }
}

/// Reads to the end, or until it is too late.
fn wait(told: &mut File) -> (String, bool) {
    let begun = Instant::now();
    let mut text = Vec::new();
    loop {
        let left = PATIENCE.saturating_sub(begun.elapsed());
        let span = rustix::event::Timespec {
            tv_sec: left.as_secs() as i64,
            tv_nsec: i64::from(left.subsec_nanos()),
        };
        let mut fds = [rustix::event::PollFd::new(&*told, rustix::event::PollFlags::IN)];
        match rustix::event::poll(&mut fds, Some(&span)) {
            Ok(0) => return (String::from_utf8_lossy(&text).into_owned(), true),
            Err(rustix::io::Errno::INTR) => continue,
            _ => {}
        }
        let mut buffer = [0; 1024];
        match told.read(&mut buffer) {
            Ok(0) | Err(_) => return (String::from_utf8_lossy(&text).into_owned(), false),
            Ok(count) => text.extend_from_slice(buffer.get(..count).unwrap_or_default()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_worker_of_roadrunner_is_told_from_a_script_that_answers_one_request() {
        assert!(
            protocol_hint("<?php\n$worker = Spiral\\RoadRunner\\Worker::create();")
                .ends_with("--protocol goridge")
        );
        assert!(protocol_hint("<?php echo 1;").contains("--protocol fastcgi"));
    }
}
