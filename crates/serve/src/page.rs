//! Refusals of this server's endpoints, as answers. How pages look is in `ringroad_gate::page`.

use crate::answer::{Answer, Context};
use ringroad_gate::page;
use ringroad_gate::path::BadPath;
use ringroad_http::{EncodeError, Method, Response, Status};

pub(crate) use ringroad_gate::page::{document, escape};

/// Returns a page as an answer.
pub(crate) fn html(status: Status, text: String) -> Result<Answer, EncodeError> {
    page::html(status, text).map(Answer::plain)
}

/// Makes a refusal: the status, and its meaning here as a sentence.
pub(crate) fn refusal(status: Status, context: &Context, what: &str) -> Answer {
    Answer::plain(page::refusal(status, context, what))
}

/// Refuses a path without a single meaning: the reason goes to the client and to the log.
pub(crate) fn bad_path(why: BadPath, context: &Context) -> Response {
    let what = format!("The address is refused: {}.", why.reason());
    page::refusal(Status::BAD_REQUEST, context, &what)
}

/// Returns the status of a lasting redirect: clients that know no 308 (Python before 3.11,
/// `HttpURLConnection`) follow 301. It lets a client ask with GET afterwards, so other methods get 308.
pub(crate) fn moved(method: Method) -> Status {
    match method {
        Method::Get | Method::Head => Status::MOVED_PERMANENTLY,
        _ => Status::PERMANENT_REDIRECT,
    }
}

/// 404.
pub(crate) fn missing(context: &Context) -> Answer {
    refusal(Status::NOT_FOUND, context, "There is nothing at this address.")
}

/// Returns the answer to a request on which this server made a mistake: nothing of it is revealed.
pub(crate) fn broken() -> Response {
    Response::empty(Status::INTERNAL_SERVER_ERROR)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_read_may_be_asked_for_with_get_elsewhere() {
        for method in [Method::Get, Method::Head] {
            assert_eq!(moved(method), Status::MOVED_PERMANENTLY, "{method:?}");
        }
        for method in [Method::Post, Method::Put, Method::Delete, Method::Options] {
            assert_eq!(moved(method), Status::PERMANENT_REDIRECT, "{method:?}");
        }
    }
}
