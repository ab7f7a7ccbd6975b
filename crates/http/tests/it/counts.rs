//! What is held by counting, since timed tests are banned: allocations, memory and system calls.

use crate::drivers::on;
use crate::support::{Client, start, wait_until};
use ringroad_engine::DriverName;
use ringroad_http::{Html, Json, Request, Response, Server, Shared, State, get};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

/// The system's allocator, with each thread's own count.
struct Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

thread_local! {
    /// Allocations so far, and bytes that this thread has allocated and not freed.
    static ALLOCATED: Cell<(u64, i64)> = const { Cell::new((0, 0)) };
    /// Most of these bytes at a time, since the last reset.
    static PEAK: Cell<i64> = const { Cell::new(0) };
    /// The largest allocation since the last reset.
    static LARGEST: Cell<usize> = const { Cell::new(0) };
}

impl Counting {
    fn count(allocations: u64, bytes: i64) {
        // Not while the thread ends.
        let _ = ALLOCATED.try_with(|all| {
            let (count, live) = all.get();
            all.set((count + allocations, live + bytes));
            let _ = PEAK.try_with(|peak| peak.set(peak.get().max(live + bytes)));
        });
        let _ =
            LARGEST.try_with(|largest| largest.set(largest.get().max(usize::try_from(bytes).unwrap_or(0))));
    }
}

// SAFETY: every call goes on to `System` with the arguments it came with; the count is a constant-initialised
// thread-local without a destructor, so that counting allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        Counting::count(1, layout.size() as i64);
        // SAFETY: the caller's promises are `System`'s.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        Counting::count(0, -(layout.size() as i64));
        // SAFETY: as above.
        unsafe { System.dealloc(memory, layout) }
    }
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        Counting::count(1, layout.size() as i64);
        // SAFETY: as above.
        unsafe { System.alloc_zeroed(layout) }
    }
    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        Counting::count(1, bytes as i64 - layout.size() as i64);
        // SAFETY: as above.
        unsafe { System.realloc(memory, layout, bytes) }
    }
}

async fn hello(_: Request) -> Html<&'static str> {
    Html("<h1>Hello World</h1>")
}

#[derive(serde::Serialize)]
struct Health {
    status: &'static str,
}

/// The worker's own count.
pub(crate) async fn allocated(_: Request) -> String {
    let (count, live) = ALLOCATED.get();
    format!("{count} {live}")
}

/// The same with the most there was at a time since this was asked before.
pub(crate) async fn peak(_: Request) -> String {
    let (count, live) = ALLOCATED.get();
    format!("{count} {live} {}", PEAK.replace(live))
}

fn server() -> Server<Shared> {
    let shared = || Shared::new(Response::html("<h1>Hello World</h1>")).unwrap();
    Server::with_state(shared)
        .route("/", get(hello))
        .route("/json", get(|_: Request| async { Json(Health { status: "ok" }) }))
        .route("/shared", get(|_: Request, state: State<Shared>| async move { Response::shared(&state) }))
        .route("/header", get(|_: Request| async { Response::text("x").header("X-One", "two") }))
        .route(
            "/users/{id}",
            get(|request: Request| async move {
                drop(request);
                "user"
            }),
        )
        .route("/allocated", get(allocated))
}

fn ask(client: &mut Client) -> (u64, i64) {
    let reply = client.get("/allocated");
    let (count, live) = reply.text().split_once(' ').unwrap();
    (count.parse().unwrap(), live.parse().unwrap())
}

drivers!(
    /// Whatever the answer is made of, as long as it is not kept.
    an_ordinary_request_after_warm_up_allocates_nothing,
    |driver: DriverName| {
        let server = start(driver, server());
        let mut client = Client::new(server.address());
        for path in ["/", "/json", "/shared", "/header", "/users/7"] {
            let mut after = |requests| {
                for _ in 0..requests {
                    assert_eq!(client.get(path).status, 200);
                }
                ask(&mut client).0
            };
            let (_, first, second, third) = (after(20), after(100), after(100), after(300));
            // The question costs something itself: the same each time.
            let of_200 = (third - second) as i64 - (second - first) as i64;
            assert_eq!(of_200, 0, "{path}: {of_200} allocations for 200 requests");
        }
    }
);

drivers!(sixteen_requests_in_one_go_allocate_nothing, |driver: DriverName| {
    let server = start(driver, server());
    let mut client = Client::new(server.address());
    let batch = "GET / HTTP/1.1\r\nHost: a\r\n\r\n".repeat(16);
    let mut after = |batches| {
        for _ in 0..batches {
            client.send(&batch);
            for _ in 0..16 {
                assert_eq!(client.reply().status, 200);
            }
        }
        ask(&mut client).0
    };
    let (_, first, second, third) = (after(20), after(100), after(100), after(200));
    assert_eq!((third - second) as i64 - (second - first) as i64, 0);
});

/// Of the worker's heap, per connection that has been served and waits: the task, its place, its seat and the
/// engine's entries. What is not in it: the thread that `threads` gives each, and the kernel's own memory.
fn an_idle_connection_costs(driver: DriverName, most: i64) {
    // So few that the tests on `select` beside this one find numbers below 1024.
    const CONNECTIONS: usize = 200;
    let server = start(driver, server());
    let mut asker = Client::new(server.address());
    let base = ask(&mut asker).1;
    let mut all = Vec::new();
    // A burst before, so that what stays from it counts.
    for _ in 0..CONNECTIONS {
        let mut client = Client::new(server.address());
        assert_eq!(client.get("/").status, 200);
        all.push(client);
    }
    let full = ask(&mut asker).1;
    drop(all);
    wait_until("they are gone", || server.counters().connections == 1);
    let empty = ask(&mut asker).1;
    let each = (full - empty) / CONNECTIONS as i64;
    assert!(each <= most, "{each} bytes for each idle connection");
    // Tables keep their size.
    let tables = (empty - base) / CONNECTIONS as i64;
    assert!(each + tables <= 512, "{each} and {tables} bytes of what stays");
    eprintln!("{each} bytes for each idle connection, and {tables} of what stays");
}

#[test]
fn an_idle_connection_is_a_small_task_on_epoll() {
    an_idle_connection_costs(DriverName::Epoll, 320);
}

#[test]
fn an_idle_connection_is_a_small_task_on_io_uring() {
    on(DriverName::IoUring, |driver| an_idle_connection_costs(driver, 320));
}

/// Requests in lockstep. The sweep's own calls, one or two a second, stay few beside them on a slow machine,
/// too.
const REQUESTS: u64 = 1000;

/// The sweep's own calls, and those of beginning and end.
const ASIDE: u64 = 200;

/// The engine's count of system calls and waits after so many requests in lockstep, when it has been told.
fn calls(driver: DriverName) -> (u64, u64) {
    let server = start(driver, server());
    let mut client = Client::new(server.address());
    for _ in 0..REQUESTS {
        assert_eq!(client.get("/").status, 200);
    }
    // Told now and then; what is told for the second time from now on is of after the last request.
    for _ in 0..2 {
        let polls = server.counters().engine[0].polls;
        wait_until("the worker tells its counts", || server.counters().engine[0].polls > polls);
    }
    let engine = server.counters().engine[0];
    (engine.system_calls, engine.waits)
}

#[test]
fn on_epoll_a_request_in_lockstep_is_one_wait_one_receive_and_one_send() {
    let (calls, waits) = calls(DriverName::Epoll);
    assert!((3 * REQUESTS..3 * REQUESTS + ASIDE).contains(&calls), "{calls}");
    assert!((REQUESTS..REQUESTS + ASIDE).contains(&waits), "{waits}");
}

#[test]
fn on_io_uring_a_request_in_lockstep_is_at_most_two_calls() {
    on(DriverName::IoUring, |driver| {
        let (calls, waits) = calls(driver);
        assert!(calls < 2 * REQUESTS + ASIDE, "{calls}");
        assert!(calls - waits < ASIDE, "{calls} calls, {waits} waits");
    });
}

drivers!(a_large_body_that_is_shared_or_static_is_not_copied, |driver: DriverName| {
    const BYTES: usize = 4 << 20;
    // Made here: in the program's file it would be there once for each driver.
    let fixed: &'static [u8] = vec![b's'; BYTES].leak();
    let shared = || Shared::new(Response::html(vec![b'x'; BYTES])).unwrap();
    let server = Server::with_state(shared)
        .route("/shared", get(|_: Request, state: State<Shared>| async move { Response::shared(&state) }))
        .route("/static", get(move |_: Request| async move { Response::html(fixed) }))
        .route("/largest", get(|_: Request| async { LARGEST.replace(0).to_string() }));
    let server = start(driver, server);
    let mut client = Client::new(server.address());
    for (path, byte) in [("/shared", b'x'), ("/static", b's')] {
        client.get("/largest");
        let reply = client.get(path);
        assert!(reply.body.len() == BYTES && reply.body.iter().all(|each| *each == byte));
        let largest: usize = client.get("/largest").text().parse().unwrap();
        assert!(largest < 64 << 10, "{path}: {largest} bytes in one piece");
    }
});
