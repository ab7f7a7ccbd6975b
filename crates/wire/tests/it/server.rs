//! A server without sockets: what a caller of this crate does, so that tests can ask how it answers.

use ringroad_wire::{
    BodySize, Encoder, Event, FieldBlock, Limits, Problem, ReplyTo, Requests, Scratch, Status,
};

/// What it did.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Served {
    /// Statuses of the answers, in order; interim ones too.
    pub(crate) statuses: Vec<u16>,
    /// Method, authority, target and body of what was understood.
    pub(crate) requests: Vec<(String, String, String, Vec<u8>)>,
    /// All bytes sent.
    pub(crate) out: Vec<u8>,
    /// Whether it closes now.
    pub(crate) closes: bool,
    /// What was wrong.
    pub(crate) problem: Option<Problem>,
}

/// Answers every request with 200, once it is complete, or at once if it `ignores_bodies`; what it cannot
/// take, with the error's status. Never sends 100.
pub(crate) fn serve(bytes: &[u8], cuts: &[usize], ignores_bodies: bool) -> Served {
    let mut scratch = Scratch::new(Limits::default());
    let mut requests = Requests::new();
    let mut served = Served::default();
    let mut to = ReplyTo::refused();
    let mut kept: Vec<u8> = Vec::new();
    let mut from = 0;
    for &cut in cuts.iter().chain([&bytes.len()]) {
        kept.extend_from_slice(&bytes[from..cut]);
        from = cut;
        loop {
            if served.closes {
                return served;
            }
            let mut used = 0;
            let event = match requests.next(&mut scratch, &kept, &mut used) {
                Ok(event) => event,
                Err(error) => {
                    served.problem = Some(error.problem());
                    served.answer(error.status(), ReplyTo::refused());
                    return served;
                }
            };
            let mut again = event.is_some();
            match event {
                Some(Event::Head(head)) => {
                    let authority = head.authority().unwrap_or_default().into();
                    let target = head.target().into();
                    served.requests.push((head.method_name().into(), authority, target, Vec::new()));
                    to = ReplyTo::from(&head);
                    let complete = head.body() == ringroad_wire::Body::Empty;
                    if complete {
                        served.answer(Status::OK, to);
                    } else if ignores_bodies {
                        let goes_on = requests.skip_body(&Limits::default());
                        served.answer(Status::OK, ReplyTo { keep_alive: to.keep_alive && goes_on, ..to });
                    }
                }
                Some(Event::Data(data)) => served.requests.last_mut().unwrap().3.extend_from_slice(data),
                Some(Event::End(_)) if ignores_bodies => {}
                Some(Event::End(_)) => served.answer(Status::OK, to),
                None => again = used > 0,
            }
            kept.drain(..used);
            if !again {
                break;
            }
        }
    }
    if let Err(error) = requests.end_of_input() {
        served.problem = Some(error.problem());
        served.closes = true;
    }
    served
}

impl Served {
    fn answer(&mut self, status: Status, to: ReplyTo) {
        self.statuses.push(status.code());
        let mut encoder = Encoder::response(&mut self.out, status, to);
        encoder.block(&FieldBlock::of([("Server", "test")]).unwrap());
        let body = encoder.finish(BodySize::Known(0));
        self.closes = !body.keep_alive();
        body.end(&mut self.out).unwrap();
    }
}
