//! What is held by counting, since timed tests are banned: allocations and system calls per request, and
//! sizes.

use crate::peer::{anywhere, echo, pair};
use crate::support::{Case, SocketDir, child, role, with_runtime};
use ringroad_engine::net::{TcpListener, TcpStream, UdpSocket, UnixListener};
use ringroad_engine::time::{sleep, timeout};
use ringroad_engine::{Counters, Runtime, spawn, sync, yield_now};
use ringroad_host::syscalls::Counter;
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::{Cell, RefCell};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::SocketAddr;
use std::os::fd::AsRawFd;
use std::process::Stdio;
use std::rc::Rc;
use std::task::Waker;
use std::time::Duration;

/// The system's allocator, with each thread's own count.
struct Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Allocations so far and the size of the last one, of one thread.
#[derive(Clone, Copy)]
struct Allocations {
    count: u64,
    last_bytes: usize,
}

thread_local! {
    static ALLOCATIONS: Cell<Allocations> = const { Cell::new(Allocations { count: 0, last_bytes: 0 }) };
}

impl Counting {
    fn count(bytes: usize) {
        // Not while the thread ends.
        let _ = ALLOCATIONS.try_with(|all| {
            all.set(Allocations { count: all.get().count + 1, last_bytes: bytes });
        });
    }
}

// SAFETY: every call goes on to `System` with the arguments it came with; the count is a constant-initialised
// thread-local without a destructor, so that counting allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        Counting::count(layout.size());
        // SAFETY: the caller's promises are `System`'s.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { System.dealloc(memory, layout) }
    }
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        Counting::count(layout.size());
        // SAFETY: as above.
        unsafe { System.alloc_zeroed(layout) }
    }
    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        Counting::count(bytes);
        // SAFETY: as above.
        unsafe { System.realloc(memory, layout, bytes) }
    }
}

fn allocations() -> Allocations {
    ALLOCATIONS.get()
}

const MESSAGE: &str = "a request that is neither short nor long";

/// One round: every client asks, then every client takes its answer.
async fn round(clients: &mut [TcpStream], under_a_timeout: bool) {
    for client in &mut *clients {
        client.write_all(MESSAGE).await.0.unwrap();
    }
    for client in clients {
        let mut got = 0;
        while got < MESSAGE.len() {
            let lease = if under_a_timeout {
                timeout(Duration::from_secs(60), client.recv()).await.unwrap()
            } else {
                client.recv().await
            };
            got += lease.unwrap().len();
        }
    }
}

/// Allocations of client and server together in 200 rounds of 20 connections, after 50.
fn allocations_of_requests(runtime: &Runtime, under_a_timeout: bool) -> u64 {
    let rounds = async {
        let mut clients = Vec::new();
        for _ in 0..20 {
            let (client, server) = pair().await;
            spawn(echo(server)).detach();
            clients.push(client);
        }
        for client in &mut clients {
            // Each has waited once: some drivers begin to wait only when nothing is there.
            assert!(futures_util::poll!(Box::pin(client.recv())).is_pending());
        }
        for _ in 0..50 {
            round(&mut clients, under_a_timeout).await;
        }
        let before = allocations().count;
        for _ in 0..200 {
            round(&mut clients, under_a_timeout).await;
        }
        allocations().count - before
    };
    runtime.block_on(rounds).unwrap()
}

cases!(
    /// Not in the simulation, which keeps books.
    a_request_after_warm_up_allocates_nothing,
    real,
    |case| with_runtime(case, |builder| builder, |_, runtime| {
        assert_eq!(allocations_of_requests(runtime, false), 0);
    })
);

cases!(a_request_under_a_timeout_allocates_nothing_either, real, |case| with_runtime(
    case,
    |builder| builder,
    |_, runtime| {
        assert_eq!(allocations_of_requests(runtime, true), 0);
    }
));

cases!(a_datagram_after_warm_up_allocates_nothing, real, |case| with_runtime(
    case,
    |builder| builder,
    |_, runtime| {
        let rounds = async {
            let (mut ours, theirs) =
                (UdpSocket::bind(anywhere()).unwrap(), UdpSocket::bind(anywhere()).unwrap());
            let address = theirs.local_addr().unwrap();
            let (mut receiver, mut sender) = theirs.split();
            let echo = spawn(async move {
                let mut buffer = Vec::with_capacity(100);
                loop {
                    buffer.clear();
                    let (received, filled) = receiver.recv_from(buffer).await;
                    let (_, from) = received.unwrap();
                    let (sent, back) = sender.send_to(filled, from).await;
                    sent.unwrap();
                    buffer = back;
                }
            });
            let mut buffer = Vec::with_capacity(100);
            let mut before = 0;
            for round in 0..250 {
                if round == 50 {
                    before = allocations().count;
                }
                ours.send_to(MESSAGE, address).await.0.unwrap();
                buffer.clear();
                let (received, filled) = ours.recv(buffer).await;
                assert_eq!(received.unwrap().length, MESSAGE.len());
                buffer = filled;
            }
            let made = allocations().count - before;
            echo.cancel();
            echo.await.unwrap_err();
            made
        };
        assert_eq!(runtime.block_on(rounds).unwrap(), 0);
    }
));

cases!(
    /// The future of an echo loop with all that belongs to it, in the one allocation that is made for a task.
    an_echo_task_is_one_allocation_of_at_most_192_bytes,
    real,
    |case| with_runtime(case, |builder| builder, |_, runtime| {
        let (count, bytes) = runtime
            .block_on(async {
                // So that the slab of tasks has room.
                let places: Vec<_> = (0..8).map(|_| spawn(async {})).collect();
                for place in places {
                    place.await.unwrap();
                }
                let (client, server) = pair().await;
                let before = allocations().count;
                let task = spawn(echo(server));
                let (count, bytes) = (allocations().count - before, allocations().last_bytes);
                drop(client);
                task.await.unwrap();
                (count, bytes)
            })
            .unwrap();
        assert_eq!(count, 1);
        assert!(bytes <= 192, "{bytes} bytes");
    })
);

/// Echoes on one connection until so many requests of MESSAGE's length are answered.
async fn serve(stream: &mut TcpStream, requests: usize) {
    for _ in 0..requests {
        let mut got = 0;
        while got < MESSAGE.len() {
            let lease = stream.recv().await.unwrap();
            got += lease.len();
            stream.write_all(lease).await.0.unwrap();
        }
    }
}

/// A server and one client that sends its next request when it has the answer. Returns by how much the
/// counters grew for that many requests in a row, for each entry of `runs`.
fn lockstep<const RUNS: usize>(runtime: &Runtime, runs: [usize; RUNS]) -> [Gained; RUNS] {
    let listener = std::net::TcpListener::bind(anywhere()).unwrap();
    let address = listener.local_addr().unwrap();
    let client = std::thread::spawn(move || {
        let mut stream = std::net::TcpStream::connect(address).unwrap();
        let mut answer = [0; MESSAGE.len()];
        for _ in 0..runs.iter().sum() {
            stream.write_all(MESSAGE.as_bytes()).unwrap();
            stream.read_exact(&mut answer).unwrap();
        }
    });
    let (accepted, _) = listener.accept().unwrap();
    let mut stream = runtime.block_on(async { TcpStream::from_std(accepted).unwrap() }).unwrap();
    let gained = runs.map(|requests| {
        let before = runtime.counters();
        runtime.block_on(serve(&mut stream, requests)).unwrap();
        let after = runtime.counters();
        Gained {
            calls: after.system_calls - before.system_calls,
            waits: after.waits - before.waits,
            polls: after.polls - before.polls,
        }
    });
    client.join().unwrap();
    gained
}

struct Gained {
    calls: u64,
    waits: u64,
    polls: u64,
}

/// What begins and ends a run of requests costs at most this many calls.
const ENDS: u64 = 10;

/// Waits until there is something to read on each.
fn all_readable(streams: &[std::net::TcpStream]) {
    for stream in streams {
        let mut ready = libc::pollfd { fd: stream.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: one live entry, written during the call; the descriptor is open.
        while unsafe { libc::poll(&raw mut ready, 1, -1) } != 1 {}
    }
}

cases!(
    /// A task that is woken by a task runs in the same turn, for 64 polls or more; a yield lets the loop poll
    /// the I/O.
    a_wake_from_task_to_task_costs_no_wait_and_a_yield_costs_one,
    real,
    |case| with_runtime(case, |builder| builder, |_, runtime| {
        let waits = |body: std::pin::Pin<Box<dyn Future<Output = ()>>>| {
            let before = runtime.counters().waits;
            runtime.block_on(body).unwrap();
            runtime.counters().waits - before
        };
        let wakes = waits(Box::pin(async {
            let (ask, asked) = sync::bounded(1);
            let (answer, answered) = sync::bounded(1);
            let answering = spawn(async move {
                while let Ok(number) = asked.recv().await {
                    answer.send(number + 1).await.unwrap();
                }
            });
            for number in 0..1000 {
                ask.send(number).await.unwrap();
                assert_eq!(answered.recv().await, Ok(number + 1));
            }
            drop(ask);
            answering.await.unwrap();
        }));
        assert!(wakes <= 100, "{wakes} waits for 1000 questions and answers");
        let yields = waits(Box::pin(async {
            for _ in 0..1000 {
                yield_now().await;
            }
        }));
        assert_eq!(yields, 1000);
    })
);

cases!(
    /// Over a Unix socket, where what was sent is there when the call returns.
    on_readiness_a_request_that_arrived_before_the_accept_needs_no_wait,
    [epoll Epoll, poll Poll, select Select],
    |case| with_runtime(case, |builder| builder, |_, runtime| {
        let dir = SocketDir::new();
        let mut listener = runtime.block_on(async { UnixListener::bind(dir.path("s")).unwrap() }).unwrap();
        for number in 0..20 {
            // The listener is ready by now, and knows it, once it has waited for the first.
            let mut client = std::os::unix::net::UnixStream::connect(dir.path("s")).unwrap();
            client.write_all(b"?").unwrap();
            let mut stream = runtime.block_on(async { listener.accept().await.unwrap() }).unwrap();
            let before = runtime.counters();
            let answered = async {
                let lease = stream.recv().await.unwrap();
                assert_eq!(&*lease, b"?");
                stream.write_all(b"!".to_vec()).await.0.unwrap();
                drop(stream);
            };
            runtime.block_on(answered).unwrap();
            let after = runtime.counters();
            let gained = (after.system_calls - before.system_calls, after.waits - before.waits);
            assert_eq!(gained, (3, 0), "connection {number}: a receive, a send, a close");
            client.read_exact(&mut [0]).unwrap();
        }
    })
);

cases!(
    on_readiness_a_request_in_lockstep_is_one_wait_one_receive_and_one_send,
    [epoll Epoll, poll Poll, select Select],
    |case| with_runtime(case, |builder| builder, |_, runtime| {
        let [_, Gained { calls, waits, .. }] = lockstep(runtime, [10, 500]);
        assert!((3 * 500..=3 * 500 + ENDS).contains(&calls), "{calls}, {:?}", runtime.counters());
        assert!((500..=500 + ENDS).contains(&waits), "{waits}, {:?}", runtime.counters());
    })
);

cases!(
    /// A worker's wait and its receive, and a send. If the runtime sleeps, which it does unless the worker is
    /// quicker than its own last step was, one call wakes it and one is its sleep.
    on_threads_a_request_in_lockstep_is_three_calls_and_at_most_two_more,
    [threads Threads],
    |case| with_runtime(case, |builder| builder, |_, runtime| {
        // One run, not a difference: how often the runtime sleeps varies from run to run.
        let [_, Gained { calls, polls, .. }] = lockstep(runtime, [10, 500]);
        // Where the peer is quicker than the runtime is back, no worker waits: the task is not polled for it.
        let least = 2 * 500 + polls.min(500) - ENDS;
        assert!((least..=5 * 500 + ENDS).contains(&calls), "{calls}, {:?}", runtime.counters());
    })
);

cases!(
    /// The kernel does not interrupt the runtime for a worker that got something.
    on_threads_a_waking_worker_does_not_preempt_the_running_thread,
    [threads Threads],
    |case| with_runtime(case, |builder| builder, |_, runtime| {
        // Of this process, where other tests may have workers too, some of them just begun.
        let policy = |task: &std::path::Path| -> Option<String> {
            let stat = std::fs::read_to_string(task.join("stat")).ok()?;
            let (name, fields) = stat.split_once('(')?.1.rsplit_once(") ")?;
            // The 41st field of proc_pid_stat(5), of which two came before.
            name.starts_with("worker ").then(|| fields.split(' ').nth(38).map(str::to_owned))?
        };
        let served = async {
            let (mut ours, mut theirs) = pair().await;
            let mut receive = Box::pin(theirs.recv());
            // A worker stands there before there is anything, and it is the worker that takes it.
            assert!(futures_util::poll!(&mut receive).is_pending());
            ours.write_all("!").await.0.unwrap();
            assert_eq!(&*receive.await.unwrap(), b"!");
            let tasks = std::fs::read_dir("/proc/self/task").unwrap();
            tasks.filter_map(|task| policy(&task.ok()?.path())).collect::<Vec<_>>()
        };
        let policies = runtime.block_on(served).unwrap();
        // SCHED_BATCH, unless the program's own policy is another.
        let own = policy_of_this_thread();
        let expected = if own == "0" { "3" } else { &own };
        assert!(policies.iter().any(|policy| policy == expected), "{policies:?}");
    })
);

/// As the kernel numbers them.
fn policy_of_this_thread() -> String {
    let stat = std::fs::read_to_string("/proc/thread-self/stat").unwrap();
    stat.rsplit_once(") ").unwrap().1.split(' ').nth(38).unwrap().to_owned()
}

cases!(
    /// One call hands the answer over and takes its completion, the next waits for the request; where the
    /// next request is there at once, both are one.
    on_io_uring_a_request_in_lockstep_is_at_most_two_calls,
    [io_uring IoUring, io_uring_plain IoUringPlain],
    |case| with_runtime(case, |builder| builder, |_, runtime| {
        let [_, Gained { calls, waits, .. }] = lockstep(runtime, [10, 500]);
        assert_eq!(calls, waits, "nothing but io_uring_enter");
        assert!((500 - ENDS..=2 * 500 + ENDS).contains(&calls), "{calls}, {:?}", runtime.counters());
    })
);

cases!(
    /// Sixteen requests that are there already are answered together: on io_uring by one call that takes them
    /// and one that hands all answers over, on readiness by a receive and a send each and no attempt in vain;
    /// on threads each has its worker's wait, and may find the runtime asleep.
    sixteen_requests_at_once_share_their_waits,
    real,
    |case| with_runtime(case, |builder| builder, |case, runtime| {
        let listener = std::net::TcpListener::bind(anywhere()).unwrap();
        let address = listener.local_addr().unwrap();
        let mut clients: Vec<std::net::TcpStream> =
            (0..16).map(|_| std::net::TcpStream::connect(address).unwrap()).collect();
        let served = Rc::new(Cell::new(0u64));
        let all_answered: Rc<RefCell<Option<Waker>>> = Rc::default();
        let accepted: Vec<_> = clients.iter().map(|_| listener.accept().unwrap().0).collect();
        let seen_by_us: Vec<_> = accepted.iter().map(|stream| stream.try_clone().unwrap()).collect();
        runtime
            .block_on(async {
                for stream in accepted {
                    let (mut stream, served) = (TcpStream::from_std(stream).unwrap(), Rc::clone(&served));
                    let all_answered = Rc::clone(&all_answered);
                    spawn(async move {
                        loop {
                            serve(&mut stream, 1).await;
                            served.set(served.get() + 1);
                            if served.get() % 16 == 0 {
                                all_answered.take().inspect(Waker::wake_by_ref);
                            }
                        }
                    })
                    .detach();
                }
            })
            .unwrap();
        let mut rounds: Vec<Counters> = Vec::new();
        let mut answer = [0; MESSAGE.len()];
        for number in 1..=100u64 {
            for client in &mut clients {
                client.write_all(MESSAGE.as_bytes()).unwrap();
            }
            // All of it is in the sockets, and only then do the servers look; but workers look when they
            // please.
            if case != Case::Threads {
                all_readable(&seen_by_us);
            }
            let round = std::future::poll_fn(|context| {
                if served.get() == 16 * number {
                    return std::task::Poll::Ready(());
                }
                all_answered.replace(Some(context.waker().clone()));
                std::task::Poll::Pending
            });
            runtime.block_on(round).unwrap();
            for client in &mut clients {
                client.read_exact(&mut answer).unwrap();
            }
            rounds.push(runtime.counters());
        }
        let calls = |counters: &Counters| counters.system_calls - counters.waits;
        // From the tenth on, when everything is registered and armed.
        let (first, last) = (&rounds[9], &rounds[99]);
        let (requests, waits) = (16 * 90, last.waits - first.waits);
        match case {
            case if case.is_readiness() => {
                assert_eq!(calls(last) - calls(first), 2 * requests);
                assert_eq!(last.would_block, first.would_block);
            }
            Case::Threads => {
                let calls = last.system_calls - first.system_calls;
                assert!((3 * requests..=5 * requests + ENDS).contains(&calls), "{calls}, {last:?}");
                return assert_eq!(last.would_block, first.would_block);
            }
            _ => assert_eq!(calls(last) - calls(first), 0),
        }
        assert!(waits <= requests / 2, "{waits} waits for {requests} requests");
    })
);

cases!(
    /// Bytes, an end, a reset and room to send that no operation waits for end one wait each at most, also
    /// where the kernel reports levels and not changes; so does the listener's next client.
    what_is_ready_and_unasked_for_does_not_keep_the_runtime_awake,
    real,
    |case| with_runtime(case, |builder| builder, |_, runtime| {
        let body = async {
            let mut listener = TcpListener::bind(anywhere()).unwrap();
            let address = listener.local_addr().unwrap();
            // Each operation below stays active in the driver, but no future waits for it any more.
            assert!(futures_util::poll!(Box::pin(listener.accept())).is_pending());
            let mut kept = Vec::new();
            for event in 0..4 {
                let (mut ours, theirs) = pair().await;
                assert!(futures_util::poll!(Box::pin(ours.recv())).is_pending());
                yield_now().await;
                let mut theirs = Some(theirs);
                let peer = theirs.as_mut().unwrap();
                match event {
                    0 => peer.write_all("unread").await.0.unwrap(),
                    1 => peer.shutdown(std::net::Shutdown::Write).unwrap(),
                    2 => {
                        peer.write_all("before").await.0.unwrap();
                        theirs = None;
                    }
                    _ => {
                        let reset = ringroad_engine::net::SocketOption::Linger(Some(Duration::ZERO));
                        peer.set_option(reset).unwrap();
                        theirs = None;
                    }
                }
                kept.push((ours, theirs));
            }
            let client = std::net::TcpStream::connect(address).unwrap();
            // All of it has happened; now nothing does.
            sleep(Duration::from_millis(5)).await;
            let before = runtime.counters().waits;
            for _ in 0..5 {
                sleep(Duration::from_millis(5)).await;
            }
            let waits = runtime.counters().waits - before;
            assert!(waits <= 50, "{waits} waits for five timers");
            drop((client, kept));
        };
        runtime.block_on(body).unwrap();
    })
);

cases!(
    /// What was begun has ended, each turn has one wait, and nothing is counted twice.
    the_counters_of_a_runtime_add_up,
    all,
    |case| with_runtime(case, |builder| builder, |case, runtime| {
        const DROPPED: u64 = 7;
        let exchange = async {
            let mut clients = Vec::new();
            let mut servers = Vec::new();
            for _ in 0..5 {
                let (client, server) = pair().await;
                servers.push(spawn(echo(server)));
                clients.push(client);
            }
            for _ in 0..20 {
                round(&mut clients, false).await;
            }
            drop(clients);
            for server in servers {
                server.await.unwrap();
            }
        };
        runtime.block_on(exchange).unwrap();
        let calm = runtime.counters();
        // Receives without any data sent to them, dropped while they wait.
        let in_vain = async {
            for _ in 0..DROPPED {
                let (mut client, _server) = pair().await;
                let mut receive = Box::pin(client.recv_into(Vec::with_capacity(10)));
                assert!(futures_util::poll!(&mut receive).is_pending());
                yield_now().await;
                drop(receive);
                client.close().await;
            }
        };
        runtime.block_on(in_vain).unwrap();
        let all = runtime.counters();
        assert_eq!((runtime.in_flight(), runtime.descriptors()), (0, 0), "{}", runtime.dump());
        // The turn that ends a `block_on` ends before its wait.
        assert_eq!(all.turns, all.waits + 2, "{all:?}");
        assert!(all.polls > 0 && all.batch_max > 0 && all.submitted > 0 && all.completed > 0, "{all:?}");
        assert_eq!((all.remote_wakes, all.leaked, all.stale, all.accept_parked), (0, 0, 0, 0), "{all:?}");
        let orphaned = all.orphaned - calm.orphaned;
        match case {
            Case::Epoll | Case::Poll | Case::Select => {
                assert!(all.system_calls > all.waits && all.answered_at_once > all.submitted, "{all:?}");
                assert_eq!(orphaned, 0, "between two system calls the kernel has nothing");
            }
            Case::Threads => {
                assert!(all.system_calls > 0 && all.answered_at_once > all.submitted, "{all:?}");
                // The listeners of `pair` are closed while an accept may still stand.
                assert!((DROPPED..=2 * DROPPED).contains(&orphaned), "{all:?}");
            }
            Case::IoUring | Case::IoUringPlain => {
                assert_eq!(all.answered_at_once, 0, "{all:?}");
                // The listeners of `pair` are closed while an accept may still stand.
                assert!((DROPPED..=2 * DROPPED).contains(&orphaned), "{all:?}");
            }
            Case::Sim => assert_eq!(all.system_calls, 0),
        }
        let cancels = all.cancels - calm.cancels;
        assert!((DROPPED..=2 * DROPPED).contains(&cancels), "{cancels}: {all:?}");
    })
);

/// A server in a process of its own: echoes, and when asked tells its own count of system calls.
fn counted_server(case: Case) {
    with_runtime(
        case,
        |builder| builder,
        |_, runtime| {
            let mut listener = runtime.block_on(async { TcpListener::bind(anywhere()).unwrap() }).unwrap();
            println!("\nlistening on {}", listener.local_addr().unwrap());
            let mut stream = runtime.block_on(listener.accept()).unwrap().unwrap();
            loop {
                // The bytes of a question are no echo's.
                let asked = runtime.block_on(async {
                    loop {
                        let lease = stream.recv().await.unwrap();
                        match lease.first() {
                            None => return false,
                            Some(b'?') => return true,
                            _ => stream.write_all(lease).await.0.unwrap(),
                        }
                    }
                });
                if !asked.unwrap() {
                    return;
                }
                let calls = runtime.counters().system_calls.to_be_bytes().to_vec();
                runtime.block_on(stream.write_all(calls)).unwrap().0.unwrap();
            }
        },
    );
}

cases!(
    /// What we count is what the kernel counts; on threads without what its threads say to one another.
    our_count_of_system_calls_is_the_kernels,
    real,
    |case| {
        if role().is_some() {
            return counted_server(case);
        }
        let mut server = child("server").stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
        // Open to its end: the test's own words go there.
        let mut lines = BufReader::new(server.stdout.take().unwrap()).lines();
        let told = lines.find_map(|line| line.unwrap().strip_prefix("listening on ").map(str::to_owned));
        let address: SocketAddr = told.expect("the server says where").parse().unwrap();
        let mut client = std::net::TcpStream::connect(address).unwrap();
        let mut answer = [0; MESSAGE.len()];
        let mut exchange = |client: &mut std::net::TcpStream, times: usize| {
            for _ in 0..times {
                client.write_all(MESSAGE.as_bytes()).unwrap();
                client.read_exact(&mut answer).unwrap();
            }
        };
        let ask = |client: &mut std::net::TcpStream| {
            let mut calls = [0; 8];
            client.write_all(b"?").unwrap();
            client.read_exact(&mut calls).unwrap();
            u64::from_be_bytes(calls)
        };
        exchange(&mut client, 10);
        let kernel = match Counter::attach(server.id()) {
            Ok(kernel) => kernel,
            Err(why) => {
                eprintln!("not compared with the kernel's count: {why}");
                drop(client);
                assert!(server.wait().unwrap().success());
                return;
            }
        };
        let (before, before_kernel) = (ask(&mut client), kernel.read().unwrap());
        exchange(&mut client, 1000);
        let (ours, kernels) = (ask(&mut client) - before, kernel.read().unwrap() - before_kernel);
        // Between the answer and our reading of the kernel's count the server goes on to its next wait. Where
        // workers and runtime meet at a lock, the second sleeps on it with futex(2), a call of the standard
        // library that we do not count: on threads the kernel counts more, and how much more depends on the
        // machine.
        let most = if case == Case::Threads { u64::MAX } else { ours + 4 };
        let both = format!("{ours} by our count, {kernels} by the kernel's");
        assert!(ours >= 1000 && ours <= kernels + 4 && kernels <= most, "{both}");
        drop(client);
        assert!(server.wait().unwrap().success());
    }
);
