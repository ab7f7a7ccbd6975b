//! An ordinary exchange allocates nothing, on either side.

use ringroad_wire::{
    BodySize, DateLine, Encoder, Event, FieldBlock, Method, ReplyTo, Requests, ResponseEvent, Responses,
    Scratch, Status,
};

#[test]
fn reading_and_writing_an_exchange_allocates_nothing() {
    let mut scratch = Scratch::default();
    let date = DateLine::new("Sun, 06 Nov 1994 08:49:37 GMT").unwrap();
    let fixed = FieldBlock::of([("Content-Type", "text/html")]).unwrap();
    let trailers = FieldBlock::of([("X-Sum", "1")]).unwrap();
    let mut asked = Vec::with_capacity(4096);
    let mut answered = Vec::with_capacity(4096);
    let mut exchange = |size: BodySize| {
        asked.clear();
        answered.clear();
        let mut request = Encoder::request(&mut asked, Method::Post, "/a?b", "example.org").unwrap();
        request.field("Accept", "*/*").unwrap().field("Cookie", "a=b").unwrap();
        let mut body = request.finish(size);
        body.data(&mut asked, b"hello").unwrap();
        body.end_with(&mut asked, &trailers).unwrap();

        let mut requests = Requests::new();
        let mut to = ReplyTo::refused();
        let mut at = 0;
        let mut events = 0;
        loop {
            // In two pieces: what is kept between them is no memory either.
            let shown = if events == 0 { &asked[..20] } else { &asked[..] };
            events += 1;
            match requests.next(&mut scratch, shown, &mut at).unwrap() {
                Some(Event::Head(head)) => to = ReplyTo::from(&head),
                Some(Event::End(_)) => break,
                _ => {}
            }
        }
        let mut answer = Encoder::response(&mut answered, Status::OK, to);
        answer.date(&date).block(&fixed);
        let mut body = answer.finish(size);
        body.data(&mut answered, b"hello").unwrap();
        body.end(&mut answered).unwrap();

        let mut responses = Responses::new();
        responses.begin(Method::Post).unwrap();
        let mut at = 0;
        loop {
            let event = responses.next(&mut scratch, &answered, &mut at).unwrap();
            if let Some(ResponseEvent::End(_)) = event {
                break;
            }
        }
        assert_eq!(at, answered.len());
    };
    let counted = allocation_counter::measure(|| {
        exchange(BodySize::Known(5));
        exchange(BodySize::Unknown);
    });
    assert_eq!(counted.count_total, 0, "{counted:?}");
}

#[test]
fn refusing_allocates_nothing() {
    let mut scratch = Scratch::default();
    let counted = allocation_counter::measure(|| {
        let mut requests = Requests::new();
        let error = requests.next(&mut scratch, b"GET / HTTP/1.1\r\nHost: a b\r\n\r\n", &mut 0).unwrap_err();
        assert_eq!(error.got(), b"a b");
    });
    assert_eq!(counted.count_total, 0, "{counted:?}");
}
