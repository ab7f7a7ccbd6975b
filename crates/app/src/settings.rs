//! What one application is to be: its command, its workers, its times and limits.

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// One application.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// Its name, in routes, logs and metrics.
    pub name: String,
    /// What is started.
    pub launch: Launch,
    /// Where it is started.
    pub directory: PathBuf,
    /// Environment variables besides those of this process.
    pub env: Vec<(String, String)>,
    /// User and group of the workers.
    pub user: Option<(u32, u32)>,
    /// Workers that always run.
    pub workers: usize,
    /// Workers at most, while requests wait; at least `workers`.
    pub workers_max: usize,
    /// Requests at once in one worker; `None`: what the worker itself wants.
    pub concurrency: Option<u32>,
    /// How a worker is chosen.
    pub dispatch: Dispatch,
    /// Requests that may wait for a worker.
    pub queue: usize,
    /// How long they may wait.
    pub queue_timeout: Duration,
    /// How long a worker may take to begin its answer, and to go on with it.
    pub timeout: Duration,
    /// How long a worker that was told to give a request up may go on before it is killed.
    pub kill_after: Duration,
    /// How long a worker may take to become ready.
    pub start_timeout: Duration,
    /// How long requests in progress, and then the end of the process, may take.
    pub stop_timeout: Duration,
    /// How often a worker is asked whether it is alive; it has four times as long to answer. Zero: never.
    pub ping: Duration,
    /// A path that a worker must answer with a status below 400 before it gets requests.
    pub health: Option<String>,
    /// Repeats requests once on another worker if their worker dies before it answers.
    pub retry: bool,
    /// Requests after which a worker is replaced; 0: never.
    pub max_requests: u64,
    /// Random part by which `max_requests` and `max_age` are shortened, from 0 to 1.
    pub jitter: f64,
    /// Age at which a worker is replaced; zero: never.
    pub max_age: Duration,
    /// Silence after which workers beyond `workers` stop; zero: they stay.
    pub idle: Duration,
    /// Resident bytes at which a worker is replaced; 0: any.
    pub memory: u64,
    /// Resident bytes at which a worker is killed; 0: any.
    pub memory_hard: u64,
    /// First and longest wait between starts that fail.
    pub backoff: (Duration, Duration),
    /// The path where the application begins (`root_path`, `SCRIPT_NAME`), without a slash at its end.
    pub root_path: String,
    /// The target is a function that makes the application.
    pub factory: bool,
    /// Most bytes of a message of a WebSocket.
    pub socket_message_bytes: u32,
    /// How long the client of a WebSocket may be silent before it is pinged, and then until it answers. Zero:
    /// it is not pinged.
    pub socket_ping: Duration,
    /// Agrees to the compression of a WebSocket's messages.
    pub socket_compress: bool,
    /// Imports the application once and forks the workers from that process.
    pub preload: bool,
    /// Processes that run tasks.
    pub tasks: usize,
    /// Whether the program has said how many, as the configuration does not.
    pub tasks_by_program: bool,
    /// Tasks that may wait for one.
    pub task_queue: usize,
    /// How long a task may run before its process is killed.
    pub task_timeout: Duration,
    /// Where a socket listens that takes tasks of other programs.
    pub task_socket: Option<PathBuf>,
    /// Folders and files that are watched; a change reloads the application.
    pub watch: Vec<PathBuf>,
    /// Development: files are watched, and failures are shown to the client.
    pub dev: bool,
}

/// What is started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Launch {
    /// A Python application (`module:attribute`), with the runner that this program carries.
    Python {
        /// The interpreter; `None`: that of the virtual environment, or `python3`.
        python: Option<PathBuf>,
        /// Module and attribute.
        target: String,
    },
    /// A PHP script.
    Php {
        /// The interpreter; `None`: `php-cgi` for FastCGI, `php` for a program that is a server itself.
        php: Option<PathBuf>,
        /// The script.
        file: PathBuf,
        /// What the interpreter speaks.
        protocol: Protocol,
    },
    /// A command.
    Command {
        /// Program and arguments. `{socket}` stands for the path of the worker's own socket.
        line: Vec<String>,
        /// What it speaks.
        protocol: Protocol,
    },
}

/// What a worker speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// RWP/1 on descriptor 3.
    Ringroad,
    /// HTTP/1.1 on a Unix socket of its own.
    Http,
    /// FastCGI on a listening Unix socket, which is its descriptor 0, one request at a time.
    FastCgi,
    /// goridge over standard input and output, one request at a time: a worker of RoadRunner.
    Goridge,
}

impl Protocol {
    /// Returns the word for it.
    pub fn as_str(self) -> &'static str {
        match self {
            Protocol::Ringroad => "ringroad",
            Protocol::Http => "http",
            Protocol::FastCgi => "fastcgi",
            Protocol::Goridge => "goridge",
        }
    }
}

/// How a worker is chosen.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Dispatch {
    /// The first one without a request; if all have some, the one with the fewest.
    #[default]
    Idle,
    /// One after another.
    Turns,
    /// The one with the fewest requests, equal ones in turn.
    Least,
    /// The same for all requests of a connection.
    Connection,
    /// The same for all requests of a client address.
    Address,
    /// The same for equal values of this header line.
    Header(String),
    /// The same for equal values of this cookie.
    Cookie(String),
}

impl Dispatch {
    /// Reads the word of the configuration.
    pub fn parse(text: &str) -> Option<Dispatch> {
        Some(match text {
            "idle" => Dispatch::Idle,
            "turns" | "round_robin" => Dispatch::Turns,
            "least" => Dispatch::Least,
            "connection" => Dispatch::Connection,
            "address" => Dispatch::Address,
            other => match other.split_once(':') {
                Some(("header", name)) if is_token(name) => Dispatch::Header(name.to_owned()),
                Some(("cookie", name)) if is_token(name) => Dispatch::Cookie(name.to_owned()),
                _ => return None,
            },
        })
    }
}

fn is_token(text: &str) -> bool {
    let token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    !text.is_empty() && text.bytes().all(token)
}

/// Why a target names no application.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadTarget(pub String);

impl fmt::Display for BadTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:?} names no application: write MODULE:ATTRIBUTE for Python (main:app), FILE.php, or a command line \
             with {{socket}} in it (\"uvicorn main:app --uds {{socket}}\")",
            self.0
        )
    }
}

impl std::error::Error for BadTarget {}

impl Settings {
    /// Makes an application with this name and command, and the default for everything else.
    pub fn new(name: impl Into<String>, launch: Launch) -> Settings {
        let php = matches!(launch, Launch::Php { .. });
        Settings {
            name: name.into(),
            launch,
            directory: PathBuf::from("."),
            env: Vec::new(),
            user: None,
            workers: std::thread::available_parallelism().map_or(1, usize::from),
            workers_max: 0,
            concurrency: None,
            dispatch: Dispatch::default(),
            queue: 1024,
            queue_timeout: Duration::from_secs(10),
            timeout: Duration::from_secs(60),
            kill_after: Duration::from_secs(5),
            start_timeout: Duration::from_secs(30),
            stop_timeout: Duration::from_secs(30),
            // A program of PHP may block for as long as a request takes.
            ping: if php { Duration::ZERO } else { Duration::from_secs(5) },
            health: None,
            retry: true,
            max_requests: 0,
            jitter: 0.1,
            max_age: Duration::ZERO,
            idle: Duration::from_secs(60),
            memory: 0,
            memory_hard: 0,
            backoff: (Duration::from_millis(100), Duration::from_secs(30)),
            root_path: String::new(),
            factory: false,
            socket_message_bytes: 16 << 20,
            socket_ping: Duration::from_secs(20),
            socket_compress: false,
            preload: false,
            tasks: 0,
            tasks_by_program: false,
            task_queue: 1000,
            task_timeout: Duration::from_secs(300),
            task_socket: None,
            watch: Vec::new(),
            dev: false,
        }
    }

    /// Returns whether one process runs the application as far as it can and forks the workers. A server of
    /// Swoole's shares tables and locks with its workers so.
    pub fn forks(&self) -> bool {
        match &self.launch {
            Launch::Python { .. } => self.preload,
            Launch::Php { protocol, .. } => *protocol == Protocol::Ringroad,
            Launch::Command { .. } => false,
        }
    }

    /// Returns whether its workers speak HTTP themselves.
    pub fn speaks_http(&self) -> bool {
        matches!(&self.launch, Launch::Command { protocol: Protocol::Http, .. })
    }

    /// Returns the most workers at once, of one generation.
    pub fn most(&self) -> usize {
        self.workers_max.max(self.workers).max(1)
    }
}

impl Launch {
    /// Reads a target: `module:attribute` is a Python application, anything with a space or a slash a command
    /// line. `protocol` is what the command line asks for; without one, a command with `{socket}` speaks
    /// HTTP.
    ///
    /// # Errors
    /// It is neither.
    pub fn parse(target: &str, protocol: Option<Protocol>) -> Result<Launch, BadTarget> {
        let identifier = |text: &str| {
            !text.is_empty()
                && text.split('.').all(|part| {
                    let mut letters = part.chars();
                    letters.next().is_some_and(|first| first.is_alphabetic() || first == '_')
                        && letters.all(|letter| letter.is_alphanumeric() || letter == '_')
                })
        };
        if let Some((module, attribute)) = target.split_once(':')
            && identifier(module)
            && identifier(attribute.strip_suffix("()").unwrap_or(attribute))
            && !matches!(protocol, Some(Protocol::Http | Protocol::FastCgi | Protocol::Goridge))
        {
            return Ok(Launch::Python { python: None, target: target.to_owned() });
        }
        if target.ends_with(".php") && !target.contains(char::is_whitespace) {
            let protocol = protocol.unwrap_or(Protocol::Ringroad);
            return match protocol {
                Protocol::FastCgi | Protocol::Goridge | Protocol::Ringroad => {
                    Ok(Launch::Php { php: None, file: PathBuf::from(target), protocol })
                }
                Protocol::Http => Err(BadTarget(target.to_owned())),
            };
        }
        let line =
            words(target).filter(|line| !line.is_empty()).ok_or_else(|| BadTarget(target.to_owned()))?;
        let socket = line.iter().any(|word| word.contains("{socket}"));
        let protocol = match protocol {
            Some(protocol) => protocol,
            None if socket || target.contains(' ') || target.contains('/') => Protocol::Http,
            None => return Err(BadTarget(target.to_owned())),
        };
        Ok(Launch::Command { line, protocol })
    }

    /// Returns what it speaks.
    pub fn protocol(&self) -> Protocol {
        match self {
            Launch::Python { .. } => Protocol::Ringroad,
            Launch::Php { protocol, .. } | Launch::Command { protocol, .. } => *protocol,
        }
    }

    /// Returns the script of a PHP application.
    pub fn script(&self) -> Option<&Path> {
        match self {
            Launch::Php { file, .. } => Some(file),
            _ => None,
        }
    }

    /// Returns the interpreter of a Python application in `folder`: the one that was named, of the active
    /// virtual environment, of `.venv` or `venv` in the folder, or the system's.
    pub(crate) fn python(named: Option<&Path>, folder: &Path) -> PathBuf {
        if let Some(named) = named {
            return named.to_owned();
        }
        let mut pythons = environments(folder).map(|environment| environment.join("bin/python"));
        pythons.find(|python| python.exists()).unwrap_or_else(|| PathBuf::from("python3"))
    }
}

/// Returns the virtual environments that an application in `folder` may have, the active one first.
pub(crate) fn environments(folder: &Path) -> impl Iterator<Item = PathBuf> {
    let active = std::env::var_os("VIRTUAL_ENV").map(PathBuf::from);
    active.into_iter().chain([".venv", "venv"].map(|name| folder.join(name)))
}

/// Words of a command line, with single and double quotes and `\` as a shell reads them. `None`: an open
/// quote.
fn words(text: &str) -> Option<Vec<String>> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut quote = None;
    let mut letters = text.chars();
    while let Some(letter) = letters.next() {
        match (quote, letter) {
            (Some(open), letter) if letter == open => quote = None,
            (Some('"') | None, '\\') => word.get_or_insert_default().push(letters.next()?),
            (Some(_), letter) => word.get_or_insert_default().push(letter),
            (None, '\'' | '"') => {
                word.get_or_insert_default();
                quote = Some(letter);
            }
            (None, letter) if letter.is_whitespace() => words.extend(word.take()),
            (None, letter) => word.get_or_insert_default().push(letter),
        }
    }
    words.extend(word);
    quote.is_none().then_some(words)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_target_is_a_python_application_or_a_command() {
        let python = |target: &str| Launch::Python { python: None, target: target.to_owned() };
        assert_eq!(Launch::parse("main:app", None).unwrap(), python("main:app"));
        assert_eq!(Launch::parse("a.b_c:make.app()", None).unwrap(), python("a.b_c:make.app()"));
        let uvicorn = Launch::parse("uvicorn main:app --uds '{socket}'", None).unwrap();
        let line = ["uvicorn", "main:app", "--uds", "{socket}"].map(str::to_owned).to_vec();
        assert_eq!(uvicorn, Launch::Command { line, protocol: Protocol::Http });
        assert_eq!(
            Launch::parse("./worker", Some(Protocol::Ringroad)).unwrap().protocol(),
            Protocol::Ringroad
        );
        let php = Launch::parse("public/index.php", Some(Protocol::FastCgi)).unwrap();
        assert_eq!((php.protocol(), php.script()), (Protocol::FastCgi, Some(Path::new("public/index.php"))));
        for wrong in ["main", "", "main:", ":app", "1:app", "a b 'c"] {
            assert!(Launch::parse(wrong, None).is_err() || wrong == "a b", "{wrong}");
        }
    }

    #[test]
    fn words_are_cut_as_a_shell_cuts_them() {
        let cut = |text| words(text).unwrap();
        assert_eq!(cut("a  'b c' \"d \\\" e\" f\\ g ''"), ["a", "b c", "d \" e", "f g", ""]);
        assert_eq!(words("a 'b"), None);
    }

    #[test]
    fn every_dispatch_has_its_word() {
        assert_eq!(Dispatch::parse("header:X-User"), Some(Dispatch::Header("X-User".to_owned())));
        assert_eq!(Dispatch::parse("turns"), Some(Dispatch::Turns));
        assert_eq!(Dispatch::parse("header:"), None);
        assert_eq!(Dispatch::parse("fastest"), None);
    }
}
