//! Child processes: ready or not, willing or not, none is left behind.

use crate::ports::nowhere;
use ringroad_lab::program::{self, Filling, Program, Start, StartError};
use ringroad_lab::suite::{Protocol, Ready, Server};
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

fn shell(script: &str) -> Start {
    Start { words: ["sh", "-c", script].map(str::to_owned).to_vec(), ..Start::default() }
}

fn server(script: &str, ready: Ready) -> Server {
    Server {
        id: "shell".to_owned(),
        driver: None,
        command: shell(script).words,
        ready,
        max_connections: None,
        max_connections_reason: None,
        protocols: vec![Protocol::Echo],
        totals: false,
        env: Default::default(),
        cwd: None,
        ready_timeout_s: 60.0,
        hint: None,
        own_page: false,
        added: false,
        url: None,
    }
}

/// Starts a shell, which listens nowhere.
fn start(server: &Server) -> Result<(Program, std::net::SocketAddr), StartError> {
    let ringroad = Path::new("/nonexistent");
    let filling = Filling { ringroad, protocol: Protocol::Echo, addr: nowhere(), arguments: &[] };
    Program::start_server(server, &filling, None, &[], &AtomicBool::new(false))
}

fn line(pattern: &str) -> Ready {
    Ready::Line(pattern.to_owned())
}

/// The process exists and is not a zombie that its parent has yet to bury.
fn alive(pid: u32) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/stat"))
        .is_ok_and(|stat| !stat.rsplit(')').next().unwrap_or("").trim_start().starts_with(['Z', 'X']))
}

/// SIGKILL is delivered at once but a process takes a moment to end; this one never would by itself.
fn ends(pid: u32) -> bool {
    let deadline = Instant::now() + Duration::from_secs(60);
    while alive(pid) && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(5));
    }
    !alive(pid)
}

/// Starts a child that ignores SIGTERM and has a child of its own that does; answers both pids.
fn stubborn_family() -> (Program, u32, u32) {
    let script = "trap '' TERM; sh -c \"trap '' TERM; while :; do sleep 100; done\" & echo family $! 127.0.0.1:1; while :; do sleep 100; done";
    let (mut program, _) = start(&server(script, line("127.0.0.1:1"))).unwrap();
    let text = program.output();
    let grandchild = text.split_whitespace().nth(1).unwrap().parse().unwrap();
    let child = program.pid();
    assert!(alive(child) && alive(grandchild));
    (program, child, grandchild)
}

#[test]
fn a_stubborn_child_and_its_grandchildren_are_killed_after_the_deadline() {
    let (program, child, grandchild) = stubborn_family();
    let ended = program.stop(Duration::from_millis(100));
    assert!(ended.killed);
    assert!(ends(child) && ends(grandchild));
}

#[test]
fn a_dropped_program_takes_its_grandchildren_along() {
    let (program, child, grandchild) = stubborn_family();
    drop(program);
    assert!(ends(child) && ends(grandchild));
}

#[test]
fn a_polite_child_stops_by_itself_and_its_last_output_is_kept() {
    let script = "trap 'echo bye; exit 0' TERM; echo up; while :; do sleep 0.01; done";
    let (program, _) = start(&server(script, line("up"))).unwrap();
    let ended = program.stop(Duration::from_secs(60));
    assert!(!ended.killed && ended.status.success());
    assert_eq!(ended.stdout, "up\nbye\n");
}

#[test]
fn the_address_is_read_out_of_the_ready_line() {
    let script = "echo warming up; echo 'I am listening on 127.0.0.1:4242 now'; sleep 100";
    let (_program, addr) = start(&server(script, line("listening on {addr} now"))).unwrap();
    assert_eq!(addr, "127.0.0.1:4242".parse().unwrap());
}

#[test]
fn a_half_written_ready_line_is_not_taken_for_a_whole_one() {
    let script = "printf 'listening on 127.0.0.1:42'; sleep 0.2; echo 42; sleep 100";
    let (_program, addr) = start(&server(script, line("listening on {addr}"))).unwrap();
    assert_eq!(addr.port(), 4242);
}

#[test]
fn an_unready_server_is_an_error_with_its_last_lines() {
    let mut server = server("echo one; echo two >&2; echo three >&2; sleep 100", line("ready"));
    let mut text = String::new();
    // A shell must come to say three words before that, also on a busy machine.
    let has_spoken = [1.0, 60.0].iter().any(|seconds| {
        server.ready_timeout_s = *seconds;
        let error = start(&server).unwrap_err();
        assert!(matches!(error, StartError::Failed(_)));
        text = error.to_string();
        assert!(text.contains("\"ready\""), "{text}");
        text.contains("two | three")
    });
    assert!(has_spoken, "{text}");
}

#[test]
fn a_server_that_never_listens_is_an_error_naming_the_address() {
    let mut server = server("sleep 100", Ready::Connect);
    server.ready_timeout_s = 0.3;
    let text = start(&server).unwrap_err().to_string();
    assert!(text.contains("127.0.0.1:") && text.contains("printed nothing"), "{text}");
}

#[test]
fn a_server_that_ends_early_is_an_error_with_code_and_words() {
    let error = start(&server("echo no luck >&2; exit 3", line("ready"))).unwrap_err();
    let text = error.to_string();
    assert!(matches!(error, StartError::Failed(_)));
    assert!(text.contains("code 3") && text.contains("no luck"), "{text}");
}

#[test]
fn exit_code_2_means_that_it_cannot_run_here() {
    let error = start(&server("echo switched off >&2; exit 2", line("ready"))).unwrap_err();
    assert!(matches!(error, StartError::Unusable(_)));
    assert!(error.to_string().contains("switched off"));
}

#[test]
fn a_program_that_is_not_there_is_missing() {
    let start = Start { words: vec!["no-such-program-here".to_owned()], ..Start::default() };
    let error = Program::start(&start).unwrap_err();
    assert!(matches!(error, StartError::Missing(_)));
    assert!(error.to_string().contains("no-such-program-here"));
}

#[test]
fn a_wish_to_stop_ends_the_wait_for_a_server() {
    let ringroad = Path::new("x");
    let filling = Filling { ringroad, protocol: Protocol::Echo, addr: nowhere(), arguments: &[] };
    let server = server("sleep 100", Ready::Connect);
    let result = Program::start_server(&server, &filling, None, &[], &AtomicBool::new(true));
    assert!(matches!(result, Err(StartError::Interrupted)));
}

#[test]
fn a_child_runs_on_the_cpus_it_was_given() {
    let cores = ringroad_lab::pin::Cores::of_this_process().unwrap();
    // The shell's own words only: what it inherits is its own affinity, and nothing has to be installed.
    let script = r#"while read -r key value; do [ "$key" = Cpus_allowed_list: ] && echo "$key $value"; done </proc/self/status; :"#;
    let start = Start { cpus: cores.server.clone(), ..shell(script) };
    let mut program = Program::start(&start).unwrap();
    while !program.has_ended() {
        program::wait_any(&mut [&mut program], Duration::from_secs(1));
    }
    let list = program.output().split_whitespace().nth(1).unwrap().to_owned();
    assert_eq!(list.split([',', '-']).next().unwrap(), cores.server[0].to_string());
    if cores.server.len() == 1 {
        assert_eq!(list, cores.server[0].to_string());
    }
}

#[test]
fn output_beyond_the_pipe_does_not_block_the_child() {
    let mut program =
        Program::start(&shell("head -c 1000000 /dev/zero | tr '\\0' x; echo; echo end")).unwrap();
    let deadline = Instant::now() + Duration::from_secs(120);
    while !program.has_ended() && Instant::now() < deadline {
        program::wait_any(&mut [&mut program], Duration::from_secs(1));
    }
    assert!(program.output().ends_with("\nend\n"));
}

/// What `peers/start.sh` starts is more than one program; with only these found, this is what it says.
#[test]
fn a_peer_that_is_not_all_there_says_which_part_is_missing() {
    let found = tempfile::tempdir().unwrap();
    for tool in ["dirname", "grep"] {
        let path = ["/usr/bin", "/bin"].map(|folder| Path::new(folder).join(tool));
        let path = path.iter().find(|path| path.exists()).unwrap();
        std::os::unix::fs::symlink(path, found.path().join(tool)).unwrap();
    }
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../peers/start.sh").display().to_string();
    let why = |peer: &str| {
        let mut server = server("", Ready::Connect);
        server.command = ["/bin/sh", &script, peer, "{port}"].map(str::to_owned).to_vec();
        server.env.insert("PATH".to_owned(), found.path().display().to_string());
        match start(&server) {
            Err(StartError::Unusable(why)) => why,
            Err(other) => panic!("{peer}: {other}"),
            Ok(_) => panic!("{peer} started"),
        }
    };
    assert!(why("node").contains("node is not installed"), "{}", why("node"));
    assert!(why("swoole").contains("php is not installed"), "{}", why("swoole"));
    let php = found.path().join("php");
    std::fs::write(&php, "#!/bin/sh\necho Core\n").unwrap();
    std::fs::set_permissions(&php, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    assert!(why("swoole").contains("extension swoole is not installed"), "{}", why("swoole"));
}
