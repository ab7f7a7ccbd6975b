//! Extractors, routers with layers and forms, without a socket and over one.

use crate::support::{Client, start};
use ringroad_engine::{DriverName, Runtime, sync, time};
use ringroad_http::layers::{self, BasicUser, Cors};
use ringroad_http::{
    BodyError, Cookies, Extension, Form, FormLimits, FromRequest, Html, Json, LocalServer, Method, Next,
    Path, Query, Request, RequestBuilder, Response, Router, Server, SseEvent, State, Status, any, get, post,
    put, wrap,
};
use serde::{Deserialize, Serialize};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

fn run<T>(future: impl Future<Output = T>) -> T {
    Runtime::builder(DriverName::Epoll).build().unwrap().block_on(future).unwrap()
}

/// Status and body of the answer to a request.
async fn ask(server: &LocalServer, request: RequestBuilder) -> (u16, String) {
    let mut response = server.call(request.finish().unwrap()).await;
    let body = response.take_body().bytes(1 << 20).await.unwrap();
    (response.status_code().code(), String::from_utf8(body).unwrap())
}

async fn get_of(server: &LocalServer, target: &str) -> (u16, String) {
    ask(server, Request::builder("GET", target)).await
}

#[derive(Debug, Deserialize, Serialize)]
struct Search {
    text: String,
    #[serde(default)]
    tag: Vec<String>,
}

#[test]
fn a_handler_gets_its_arguments_or_the_client_the_reason() {
    async fn item(Path((shop, id)): Path<(String, u64)>, Query(search): Query<Search>) -> String {
        format!("{shop} {id} {} {:?}", search.text, search.tag)
    }
    async fn store(state: State<Arc<AtomicUsize>>, cookies: Cookies, Json(search): Json<Search>) -> String {
        state.fetch_add(1, Ordering::Relaxed);
        format!("{:?} {}", cookies.get("id"), search.text)
    }
    async fn form(Form(search): Form<Search>) -> String {
        search.tag.join("+")
    }
    async fn maybe(found: Option<Json<Search>>, text: Result<String, BodyError>) -> String {
        format!("{} {}", found.is_some(), text.unwrap())
    }
    async fn missing(Extension(user): Extension<BasicUser>) -> String {
        user.0
    }
    let calls = Arc::new(AtomicUsize::new(0));
    let server = Server::with_shared_state(Arc::clone(&calls))
        .route("/shops/{shop}/{id}", get(item))
        .route("/search", post(store).put(form).patch(maybe))
        .route("/missing", get(missing));
    let server = server.local().unwrap();
    run(async {
        assert_eq!(
            get_of(&server, "/shops/a%20b/7?text=x&tag=1&tag=2").await,
            (200, "a b 7 x [\"1\", \"2\"]".into())
        );
        let (status, why) = get_of(&server, "/shops/a/b?text=x").await;
        assert_eq!((status, why.as_str()), (400, "path: \"b\" is no number from 0 of 64 bits\n"));
        let (status, why) = get_of(&server, "/shops/a/7").await;
        assert!(status == 400 && why.contains("missing field `text`"), "{why}");

        let value = Search { text: "hello".into(), tag: vec!["a".into(), "b".into()] };
        let json =
            |method| Request::builder(method, "/search").header("Cookie", "id=9").json(&value).unwrap();
        assert_eq!(ask(&server, json("POST")).await, (200, "Some(\"9\") hello".into()));
        assert_eq!(ask(&server, json("PUT")).await.0, 415);
        let form = Request::builder("PUT", "/search").form(&value).unwrap();
        assert_eq!(ask(&server, form).await, (200, "a+b".into()));
        let of_type = |kind: &str, body: &'static str| {
            Request::builder("POST", "/search").header("Content-Type", kind).body(body)
        };
        assert_eq!(ask(&server, of_type("text/plain", "{}")).await.0, 415);
        assert_eq!(ask(&server, of_type("application/json", "{")).await.0, 400);
        assert_eq!(ask(&server, of_type("application/json", "{}")).await.0, 422);
        let form = Request::builder("PUT", "/search").form(&[("tag", "x")]).unwrap();
        assert_eq!(ask(&server, form).await.0, 422);
        let text = Request::builder("PATCH", "/search").body("plain");
        assert_eq!(ask(&server, text).await, (200, "false plain".into()));
        // What is missing inside is not told outside.
        assert_eq!(get_of(&server, "/missing").await, (500, "500 Internal Server Error\n".into()));
    });
    assert_eq!(calls.load(Ordering::Relaxed), 1);
}

#[test]
fn an_extractor_of_a_program_is_one_like_any_other() {
    struct Token(String);
    impl<S: 'static> FromRequest<S> for Token {
        type Rejection = (Status, &'static str);
        async fn from_request(request: &mut Request, _: &State<S>) -> Result<Token, (Status, &'static str)> {
            let token = request.header("x-token").ok_or((Status::FORBIDDEN, "no token"))?;
            Ok(Token(token.to_owned()))
        }
    }
    async fn token(token: Token) -> String {
        token.0
    }
    let server =
        Server::new().route("/", get(wrap::timeout(Duration::from_secs(60), token))).local().unwrap();
    run(async {
        assert_eq!(get_of(&server, "/").await, (403, "no token".into()));
        assert_eq!(
            ask(&server, Request::builder("GET", "/").header("X-Token", "t")).await,
            (200, "t".into())
        );
    });
}

/// Writes its name into a line of the response, in front of those there are.
fn named<S: 'static>(name: &'static str) -> impl ringroad_http::Layer<S> {
    move |request: Request, next: Next<S>| async move {
        let mut response = next.run(request).await;
        let before = response.header_value("x-way").map(|way| String::from_utf8_lossy(way).into_owned());
        let way = before.map_or_else(|| name.to_owned(), |way| format!("{name} {way}"));
        response.set_header("X-Way", way).unwrap();
        response
    }
}

fn way(response: &Response) -> String {
    String::from_utf8_lossy(response.header_value("x-way").unwrap_or_default()).into_owned()
}

#[test]
fn layers_are_around_routes_404_and_405_and_around_what_is_nested() {
    async fn id(request: Request) -> String {
        format!("{} {:?}", request.path(), request.param("id"))
    }
    let inner = Router::new()
        .route("/", get(id))
        .route("/{id}", put(id))
        .layer(named("inner"))
        .fallback(async |_: Request| Status::GONE);
    let flat = Router::new().route("/flat/{id}", get(id));
    let merged = Router::new().route("/merged/{id}", get(id)).layer(named("merged"));
    let router = Router::new()
        .layer(named("first"))
        .layer(named("second"))
        .route("/root", get(id))
        .nest("/api", inner)
        .nest("/v2", flat)
        .merge(merged);
    let server = Server::new().router(router).route("/bare", get(id)).local().unwrap();
    run(async {
        for (method, target, status, expected) in [
            ("GET", "/root", 200, "first second"),
            ("POST", "/root", 405, "first second"),
            ("OPTIONS", "/root", 204, "first second"),
            ("GET", "/nothing", 404, "first second"),
            ("GET", "/api", 200, "first second inner"),
            ("PUT", "/api/7", 200, "first second inner"),
            ("GET", "/api/7", 405, "first second inner"),
            ("GET", "/api/7/8", 410, "first second inner"),
            ("GET", "/v2/flat/1", 200, "first second"),
            ("GET", "/merged/1", 200, "first second merged"),
            ("GET", "/merged", 404, "first second"),
            ("GET", "/bare", 200, ""),
        ] {
            let response = server.call(Request::builder(method, target).finish().unwrap()).await;
            let found = (response.status_code().code(), way(&response));
            assert_eq!(found, (status, expected.to_owned()), "{method} {target}");
        }
        assert_eq!(get_of(&server, "/merged/a%20b").await.1, "/merged/a%20b Some(\"a b\")");
        assert_eq!(get_of(&server, "/v2/flat/1").await.1, "/v2/flat/1 Some(\"1\")");
        assert_eq!(get_of(&server, "/root").await.1, "/root None");
    });
}

#[test]
fn a_pattern_that_is_there_twice_is_an_error_with_its_name() {
    async fn nothing(_: Request) {}
    let twice = Router::new().route("/a", get(nothing)).nest("/a", Router::new().route("/", get(nothing)));
    let why = Server::new().router(twice).local().unwrap_err().to_string();
    assert!(why.contains("/a"), "{why}");
}

#[test]
fn a_layer_may_change_the_path_answer_by_itself_and_see_the_state() {
    async fn gate(mut request: Request, next: Next<u32>) -> Result<Response, Status> {
        if request.path() == "/closed" {
            return Err(Status::FORBIDDEN);
        }
        if request.path() == "/old" {
            request.set_target("/items/7").map_err(|_| Status::INTERNAL_SERVER_ERROR)?;
        }
        let limit = **next.state();
        request.extensions_mut().insert(limit);
        Ok(next.run(request).await)
    }
    async fn item(Path(id): Path<u32>, Extension(limit): Extension<u32>) -> String {
        format!("{id} of {limit}")
    }
    let router = Router::new().route("/items/{id}", get(item)).layer(gate);
    let server = Server::with_shared_state(9).router(router).local().unwrap();
    run(async {
        assert_eq!(get_of(&server, "/old").await, (200, "7 of 9".into()));
        assert_eq!(get_of(&server, "/closed").await.0, 403);
    });
}

#[test]
fn a_panic_is_500_and_a_layer_may_answer_it() {
    async fn broken(_: Request) -> &'static str {
        panic!("a mistake that this test makes")
    }
    async fn later(_: Request) -> &'static str {
        time::sleep(Duration::from_millis(1)).await;
        panic!("a later mistake that this test makes")
    }
    let sorry = || Response::text("sorry").status(Status::INTERNAL_SERVER_ERROR);
    let caught = Router::new().route("/now", get(broken)).route("/later", get(later));
    let caught = caught.layer(named("outside")).layer(layers::catch_panic(sorry));
    let server = Server::new().router(Router::new().nest("/caught", caught)).route("/bare", get(broken));
    let server = server.local().unwrap();
    run(async {
        for target in ["/caught/now", "/caught/later"] {
            let mut response = server.call(Request::builder("GET", target).finish().unwrap()).await;
            assert_eq!((response.status_code().code(), way(&response)), (500, "outside".into()), "{target}");
            assert_eq!(response.take_body().bytes(100).await.unwrap(), b"sorry");
        }
        assert_eq!(get_of(&server, "/bare").await.0, 500);
    });
}

#[test]
fn credentials_let_in_and_others_are_401() {
    async fn name(Extension(user): Extension<BasicUser>) -> String {
        user.0
    }
    async fn number(Extension(user): Extension<u32>) -> String {
        user.to_string()
    }
    let basic = layers::basic_auth("in\"side", |name: &str, password: &str| {
        name == "ada" && layers::same_secret(password, "love:lace")
    });
    let bearer = layers::bearer_auth(|token: &str| layers::same_secret(token, "t-1").then_some(7_u32));
    let server = Server::new()
        .router(Router::new().nest("/basic", Router::new().route("/", get(name)).layer(basic)))
        .router(Router::new().nest("/bearer", Router::new().route("/", get(number)).layer(bearer)));
    let server = server.local().unwrap();
    run(async {
        let with = |target: &str, line: &str| Request::builder("GET", target).header("Authorization", line);
        // `ada:love:lace`
        assert_eq!(ask(&server, with("/basic", "bAsic YWRhOmxvdmU6bGFjZQ==")).await, (200, "ada".into()));
        for wrong in ["Basic YWRhOnBpbms=", "Basic %", "Basic", "Bearer t-1"] {
            let response = server.call(with("/basic", wrong).finish().unwrap()).await;
            let challenge = response.header_value("www-authenticate");
            assert_eq!(response.status_code(), Status::UNAUTHORIZED, "{wrong}");
            assert_eq!(challenge, Some(&b"Basic realm=\"in'side\", charset=\"UTF-8\""[..]));
        }
        assert_eq!(ask(&server, with("/bearer", "Bearer t-1")).await, (200, "7".into()));
        for (line, expected) in [("Bearer t-2", "Bearer error=\"invalid_token\""), ("Basic x", "Bearer")] {
            let response = server.call(with("/bearer", line).finish().unwrap()).await;
            assert_eq!(response.header_value("www-authenticate"), Some(expected.as_bytes()));
        }
    });
}

#[test]
fn pages_of_other_origins_read_what_they_may() {
    let cors = Cors::new()
        .origin("https://app.test")
        .methods([Method::Put])
        .headers(["x-token"])
        .expose(["x-way"])
        .credentials(true)
        .max_age(Duration::from_secs(60));
    let router = Router::new().route("/", get(async |_: Request| "x")).layer(cors.layer().unwrap());
    let open = Router::new().route("/open", any(async |_: Request| "x"));
    let open = open.layer(Cors::new().any_origin().any_header().credentials(true).layer().unwrap());
    let server = Server::new().router(router.merge(open)).local().unwrap();
    let asking = |target: &str, origin: &str| {
        let asking = Request::builder("OPTIONS", target).header("Origin", origin);
        let asking = asking.header("Access-Control-Request-Method", "PUT");
        asking.header("Access-Control-Request-Headers", "x-token, x-more")
    };
    run(async {
        let lines = async |request: RequestBuilder| {
            let response = server.call(request.finish().unwrap()).await;
            let mut lines: Vec<String> = response
                .headers()
                .filter(|line| !line.name.eq_ignore_ascii_case(b"content-type"))
                .map(|line| format!("{}: {}", line.name.escape_ascii(), line.value.escape_ascii()))
                .collect();
            lines.sort();
            (response.status_code().code(), lines.join("\n"))
        };
        let (status, found) = lines(asking("/", "https://app.test")).await;
        let expected = "Access-Control-Allow-Credentials: true\nAccess-Control-Allow-Headers: x-token\n\
                        Access-Control-Allow-Methods: PUT\nAccess-Control-Allow-Origin: https://app.test\n\
                        Access-Control-Max-Age: 60\nVary: Origin";
        assert_eq!((status, found.as_str()), (204, expected));
        assert_eq!(lines(asking("/", "https://bad.test")).await, (204, "Vary: Origin".to_owned()));
        let (status, found) =
            lines(Request::builder("GET", "/none").header("Origin", "https://app.test")).await;
        assert!(status == 404 && found.contains("Allow-Origin: https://app.test"), "{found}");
        assert!(found.contains("Expose-Headers: x-way"), "{found}");
        assert_eq!(lines(Request::builder("GET", "/")).await, (200, "Vary: Origin".to_owned()));
        let (_, found) = lines(Request::builder("GET", "/open").header("Origin", "https://any.test")).await;
        assert!(found.contains("Allow-Origin: *") && !found.contains("Credentials"), "{found}");
    });
}

#[test]
fn time_places_and_facts_are_kept_by_layers() {
    let (told, heard) = mpsc::channel();
    let slow = async |_: Request| std::future::pending::<()>().await;
    let nested = Router::new().route("/", get(slow)).layer(layers::timeout(Duration::from_millis(5)));
    let full = Router::new().route("/", get(async |_: Request| "in")).layer(layers::limit(0));
    let router = Router::new()
        .layer(layers::log(move |record: wrap::Record| told.send((record.target, record.status)).unwrap()))
        .layer(layers::server_timing())
        .nest("/slow", nested)
        .nest("/full", full);
    let server = Server::new().router(router).local().unwrap();
    run(async {
        let response = server.call(Request::builder("GET", "/slow").finish().unwrap()).await;
        assert_eq!(response.status_code(), Status::SERVICE_UNAVAILABLE);
        assert!(response.header_value("server-timing").unwrap().starts_with(b"total;dur="));
        assert_eq!(get_of(&server, "/full").await.0, 503);
    });
    assert_eq!(heard.recv().unwrap(), ("/slow".to_owned(), Status::SERVICE_UNAVAILABLE));
    assert_eq!(heard.recv().unwrap().0, "/full");
}

#[test]
fn a_limit_of_a_route_behind_layers_is_413() {
    async fn length(body: Vec<u8>) -> String {
        body.len().to_string()
    }
    let router = Router::new().route("/", post(length).body_bytes_max(4)).layer(named("a"));
    let server = Server::new().router(router).local().unwrap();
    run(async {
        assert_eq!(ask(&server, Request::builder("POST", "/").body("1234")).await, (200, "4".into()));
        assert_eq!(ask(&server, Request::builder("POST", "/").body("12345")).await.0, 413);
    });
}

/// A body with two fields and two files.
fn form(boundary: &str, file: &[u8]) -> Vec<u8> {
    let part = |head: &str, body: &[u8]| {
        let mut part = format!("--{boundary}\r\nContent-Disposition: form-data; {head}\r\n\r\n").into_bytes();
        part.extend_from_slice(body);
        part.extend_from_slice(b"\r\n");
        part
    };
    let mut all = part("name=\"title\"", "ä title".as_bytes());
    all.extend(part("name=\"photo\"; filename=\"../a.png\"\r\nContent-Type: image/png", file));
    all.extend(part("name=\"title\"", b"second"));
    all.extend(part("name=\"empty\"; filename=\"e\"", b""));
    all.extend(format!("--{boundary}--\r\n").into_bytes());
    all
}

#[test]
fn a_form_with_files_is_stored_within_its_bounds() {
    let folder = tempfile::tempdir().unwrap();
    let in_folder = || std::fs::read_dir(folder.path()).unwrap().count();
    let limits = || {
        let mut limits = FormLimits::default();
        limits.folder = folder.path().to_path_buf();
        limits
    };
    let file: Vec<u8> = (0..200_000_u32).map(|at| (at % 251) as u8).collect();
    let request = |body: Vec<u8>| {
        let made = Request::builder("POST", "/").header("Content-Type", "multipart/form-data; boundary=xYz");
        made.body(body).finish().unwrap()
    };
    run(async {
        let form_data = request(form("xYz", &file)).form_data_with(&limits()).await.unwrap();
        let fields: Vec<_> = form_data.fields().collect();
        assert_eq!(fields, [("title", "ä title"), ("title", "second")]);
        assert_eq!(form_data.get("title"), Some("ä title"));
        let photo = form_data.file("photo").unwrap();
        assert_eq!((photo.file_name(), photo.content_type()), ("../a.png", Some("image/png")));
        assert_eq!((photo.bytes(), std::fs::read(photo.path()).unwrap()), (200_000, file.clone()));
        assert_eq!((form_data.files().len(), form_data.file("empty").unwrap().bytes()), (2, 0));
        let kept = folder.path().join("kept");
        let mut files = form_data.into_files();
        files.remove(0).keep(&kept).unwrap();
        drop(files);
        assert_eq!((in_folder(), std::fs::read(&kept).unwrap().len()), (1, 200_000));

        let status = async |body: Vec<u8>, limits: FormLimits| {
            request(body).form_data_with(&limits).await.unwrap_err().status().code()
        };
        let (mut few, mut short, mut small) = (limits(), limits(), limits());
        (few.parts, short.text_bytes, small.file_bytes) = (2, 10, 100_000);
        assert_eq!(status(form("xYz", &file), few).await, 400);
        assert_eq!(status(form("xYz", &file), short).await, 413);
        assert_eq!(status(form("xYz", &file), small).await, 413);
        let mut cut = form("xYz", &file);
        cut.truncate(100_000);
        assert_eq!(status(cut, limits()).await, 400);
        assert_eq!(status(form("other", b"x"), limits()).await, 400);
        let mut nowhere = limits();
        nowhere.folder = folder.path().join("none");
        assert_eq!(status(form("xYz", &file), nowhere).await, 500);
        let mut plain = Request::builder("POST", "/").body("x").finish().unwrap();
        assert_eq!(plain.form_data().await.unwrap_err().status(), Status::UNSUPPORTED_MEDIA_TYPE);
        assert_eq!(in_folder(), 1);
    });
}

drivers!(layers_extractors_and_forms_work_over_sockets, |driver: DriverName| {
    async fn upload(mut request: Request) -> Result<String, BodyError> {
        let form = request.form_data().await?;
        Ok(format!("{} {}", form.get("title").unwrap_or_default(), form.files()[0].bytes()))
    }
    async fn page(Path(name): Path<String>) -> Html<String> {
        Html(name)
    }
    async fn broken(_: Request) -> &'static str {
        panic!("a mistake that this test makes")
    }
    let router = Router::new()
        .route("/page/{name}", get(page))
        .route("/upload", post(upload).body_bytes_max(300_000))
        .route("/broken", get(broken))
        .layer(named("outer"));
    let server = start(driver, Server::new().workers(2).router(router));
    let mut client = Client::new(server.address());
    // The second of the same head meets the copy of the first.
    for _ in 0..3 {
        let reply = client.get("/page/ada");
        assert_eq!((reply.text(), reply.header("x-way")), ("ada", Some("outer")));
    }
    let reply = client.get("/nothing");
    assert_eq!((reply.status, reply.header("x-way")), (404, Some("outer")));
    assert_eq!(client.get("/broken").status, 500);
    let send = |client: &mut Client, file: &[u8]| {
        let body = form("b", file);
        let head = format!(
            "POST /upload HTTP/1.1\r\nHost: a\r\nContent-Type: multipart/form-data; boundary=b\r\nContent-Length: {}\r\n\r\n",
            body.len()
        );
        client.send(head);
        // The server may refuse it before all of it has come.
        client.try_send(body);
        client.reply()
    };
    assert_eq!(send(&mut client, &[7; 250_000]).text(), "ä title 250000");
    assert_eq!(send(&mut client, &[7; 310_000]).status, 413);
    assert_eq!(server.counters().panics, 1);
});

drivers!(a_handler_needs_no_arguments_and_leaves_the_connection_in_order, |driver: DriverName| {
    async fn version() -> &'static str {
        "1.0"
    }
    let router = Router::new().route("/version", get(version).post(async || Status::NO_CONTENT));
    let server = start(driver, Server::new().workers(1).router(router));
    let mut client = Client::new(server.address());
    for _ in 0..2 {
        // A body that the handler never sees.
        client.send("POST /version HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nGET /");
        assert_eq!(client.reply().status, 204);
        assert_eq!(client.get("/version").text(), "1.0");
    }
});

drivers!(events_reach_the_client_with_comments_between_them_and_end_with_it, |driver: DriverName| {
    let (told, heard) = mpsc::channel();
    let events = move |request: Request| {
        let told = told.clone();
        async move {
            let from: u32 = request.last_event_id().and_then(|id| id.parse().ok()).unwrap_or(0);
            let (sender, receiver) = sync::bounded(1);
            ringroad_engine::spawn(async move {
                for number in from + 1.. {
                    let event = SseEvent::new(format!("line\n{number}")).name("tick").id(&number.to_string());
                    if sender.send(event).await.is_err() {
                        break;
                    }
                    // The client waits for a comment before it asks on.
                    time::sleep(Duration::from_millis(30)).await;
                }
                told.send(()).unwrap();
            })
            .detach();
            Response::events_every(Duration::from_millis(5), receiver)
        }
    };
    let server = start(driver, Server::new().route("/", get(events)));
    let mut client = Client::new(server.address());
    client.send("GET / HTTP/1.1\r\nHost: a\r\nLast-Event-ID: 41\r\n\r\n");
    let mut seen = Vec::new();
    let has = |seen: &[u8], text: &str| seen.windows(text.len()).any(|window| window == text.as_bytes());
    while !(has(&seen, "id: 43\n") && has(&seen, ":\n\n")) {
        let some = client.some();
        assert!(!some.is_empty(), "{}", String::from_utf8_lossy(&seen));
        seen.extend(some);
    }
    let text = String::from_utf8_lossy(&seen);
    assert!(text.contains("Content-Type: text/event-stream\r\n"), "{text}");
    assert!(text.contains("event: tick\nid: 42\ndata: line\ndata: 42\n\n"), "{text}");
    // With the client its stream is gone, and the task that fills it ends.
    client.reset();
    heard.recv().unwrap();
});
