//! Messages without a socket: made, read and changed.

use ringroad_engine::{DriverName, Runtime};
use ringroad_http::{BodyError, Chunk, FieldBlock, Request, RequestBody, Response, Shared, Status};
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

fn run<T>(future: impl Future<Output = T>) -> T {
    Runtime::builder(DriverName::Epoll).build().unwrap().block_on(future).unwrap()
}

fn request(body: RequestBody) -> Request {
    let lines = FieldBlock::of([("X-One", "1"), ("Accept", "text/html")]).unwrap();
    Request::from_parts("POST", "/a%20b?c=d", "example.org:80", &lines, body).unwrap()
}

#[test]
fn a_request_made_from_parts_says_what_they_say() {
    let request = request(RequestBody::from("body"));
    assert_eq!((request.method_name(), request.path(), request.query()), ("POST", "/a%20b", Some("c=d")));
    assert_eq!((request.authority(), request.header("x-one")), (Some("example.org:80"), Some("1")));
    assert_eq!((request.peer_addr(), request.connection()), (None, None));
    let mut gone = pin!(request.client_gone());
    assert_eq!(gone.as_mut().poll(&mut Context::from_waker(Waker::noop())), Poll::Pending);
    let lines = FieldBlock::new();
    for (method, target, authority) in [("G T", "/", "a"), ("GET", "/ /", "a"), ("GET", "/", "a b")] {
        let made = Request::from_parts(method, target, authority, &lines, RequestBody::empty());
        assert!(made.is_err(), "{method} {target} {authority}");
    }
    let long = "x".repeat(70_000);
    assert!(Request::from_parts("GET", &format!("/{long}"), "a", &lines, RequestBody::empty()).is_err());
}

#[test]
fn what_one_step_finds_out_the_next_is_handed() {
    #[derive(Debug, PartialEq)]
    struct User(&'static str);
    let mut request = request(RequestBody::empty());
    assert_eq!(request.extensions().get::<User>(), None);
    request.extensions_mut().insert(User("ada"));
    assert_eq!(request.extensions().get(), Some(&User("ada")));
    // Its memory is used again, without what was in it.
    drop(request);
    assert_eq!(self::request(RequestBody::empty()).extensions().get::<User>(), None);
}

#[test]
fn a_body_is_read_in_part_and_played_again() {
    run(async {
        let shared: Arc<[u8]> = Arc::from(&b"shared"[..]);
        let mut body =
            RequestBody::replay([Chunk::from("one "), Chunk::from(shared)], RequestBody::from(" rest"));
        assert_eq!(body.bytes_left(), Some(15));
        let first = body.next().await.unwrap().unwrap();
        assert_eq!((&*first, body.bytes_left()), (&b"one "[..], Some(11)));
        let mut again =
            RequestBody::replay([first], body).with_trailers(vec![("X".to_owned(), b"y".to_vec())]);
        assert_eq!(again.bytes(100).await.unwrap(), b"one shared rest");
        assert_eq!((again.bytes_left(), again.trailers()), (Some(0), vec![("X".to_owned(), b"y".to_vec())]));
        assert!(again.next().await.is_none());
    });
}

#[test]
fn a_body_that_grows_past_its_limit_is_an_error_and_one_known_to_be_longer_at_once() {
    run(async {
        let mut known = RequestBody::from("0123456789");
        known.limit(10).unwrap();
        assert!(matches!(known.limit(9), Err(BodyError::TooLong(9))));
        let (send, pieces) = ringroad_engine::sync::bounded::<Result<Chunk, BodyError>>(4);
        for piece in ["0123", "4567", "89"] {
            send.try_send(Ok(Chunk::from(piece))).unwrap();
        }
        let mut unknown = RequestBody::stream(None, pieces);
        unknown.limit(9).unwrap();
        assert_eq!(unknown.bytes_left(), None);
        let why = unknown.bytes(100).await.unwrap_err();
        assert!(matches!(why, BodyError::TooLong(9)) && why.status() == Status::CONTENT_TOO_LARGE);
    });
}

fn lines(response: &Response) -> Vec<String> {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    response.headers().map(|field| format!("{}: {}", text(field.name), text(field.value))).collect()
}

#[test]
fn the_header_lines_of_a_response_are_read_and_changed() {
    let mut response = Response::html("<p>").header("Vary", "a").unwrap().header("vary", "b").unwrap();
    assert_eq!(lines(&response), ["Content-Type: text/html", "Vary: a", "vary: b"]);
    assert_eq!(response.header_value("content-type"), Some(&b"text/html"[..]));
    response.set_header("VARY", "c").unwrap();
    assert!(
        response.set_header("Vary", "x\r\ny").is_err() && response.set_header("Content-Length", "1").is_err()
    );
    assert!(response.remove_header("Content-Type") && !response.remove_header("Content-Type"));
    assert_eq!(lines(&response), ["VARY: c"]);
    assert_eq!(response.body().as_bytes(), Some(&b"<p>"[..]));
}

#[test]
fn a_shared_response_is_changed_for_one_request_only_and_its_body_is_not_copied() {
    let body = vec![b'x'; 100_000];
    let shared = Shared::new(Response::text(body).header("ETag", "\"1\"").unwrap()).unwrap();
    let mut one = Response::shared(&shared).header("X-Request-Id", "7").unwrap();
    assert_eq!(lines(&one), ["Content-Type: text/plain; charset=utf-8", "ETag: \"1\"", "X-Request-Id: 7"]);
    one.remove_header("etag");
    assert_eq!(lines(&one), ["Content-Type: text/plain; charset=utf-8", "X-Request-Id: 7"]);
    let mut other = Response::shared(&shared);
    assert_eq!(lines(&other), ["Content-Type: text/plain; charset=utf-8", "ETag: \"1\""]);
    let at = |response: &mut Response| response.body().as_bytes().unwrap().as_ptr();
    assert_eq!(at(&mut one), at(&mut other));
}
