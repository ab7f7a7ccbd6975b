//! Requests to workers of RoadRunner: forms are read here, because such a worker has no parser of its own.
//!
//! The exchange with a worker is `ringroad_app`'s. What a failure becomes for the client is that of all
//! applications.

use crate::answer::{Answer, AnsweredBy};
use crate::app::{self, AppPlace, Asked, Outgoing};
use crate::app_parting::end_with_code;
use crate::app_repeat::{Repeats, is_idempotent};
use crate::page;
use ringroad_app::{
    BadForm, Failed, Form, GoridgeBody, Settings, exchange_goridge, goridge_head, is_form, multipart,
    urlencoded,
};
use ringroad_gate::flow;
use ringroad_http::{EncodeError, Method, Request, RequestBody, Status};
use std::rc::Rc;
use std::time::Instant;

/// Answers a request with the body `body` by a worker that speaks goridge.
pub(crate) async fn answer(
    place: &Rc<AppPlace>,
    body: Outgoing,
    key: Option<u64>,
    settings: &Settings,
    request: &Request,
    asking: &flow::Context,
) -> Result<Answer, EncodeError> {
    let (pool, begun, method) = (&place.pool, Instant::now(), request.method());
    let form = match form(&body, settings, request).await {
        Ok(form) => form,
        Err(why) => {
            let told = why.to_string();
            let status = match why {
                BadForm::Malformed(_) => {
                    asking.client_fault(told);
                    Status::BAD_REQUEST
                }
                BadForm::Store(_) => {
                    asking.fault(told);
                    Status::SERVICE_UNAVAILABLE
                }
            };
            return Ok(page::refusal(status, asking, "The form cannot be read."));
        }
    };
    let asked = Asked::of(place, request, asking);
    let incoming = asked.incoming(place, request, &settings.root_path, None);
    let head = goridge_head(&incoming, form.as_ref());
    let mut repeats = Repeats::new(pool, key, settings, is_idempotent(method));
    let (answered, exchange, worker) = loop {
        let ticket = match repeats.ticket().await {
            Ok(ticket) => ticket,
            Err(refused) => {
                app::count(pool, 503, begun);
                return app::unavailable(&settings.name, settings.dev, &refused, asking);
            }
        };
        let worker = std::sync::Arc::clone(ticket.worker());
        worker.set_request(asking.id());
        let content = match (&form, &body) {
            (Some(form), _) => GoridgeBody::Whole(form.fields.to_string().into_bytes()),
            (None, Outgoing::Whole(bytes)) => GoridgeBody::Whole(bytes.clone()),
            (None, Outgoing::Kept(all)) => GoridgeBody::Kept(all.size(), all.body()),
            (None, Outgoing::Once(_)) => GoridgeBody::Whole(Vec::new()),
        };
        let exchange = exchange_goridge(ticket, head.clone(), content);
        match exchange.head().await {
            Ok(answered) => break (answered, exchange, worker),
            Err(Failed::TooLate) => {
                app::count(pool, 504, begun);
                asking.fault(format!("app {}: no answer within {:?}", settings.name, settings.timeout));
                return Ok(page::refusal(Status::GATEWAY_TIMEOUT, asking, "The application took too long."));
            }
            Err(failed) => {
                if repeats.again(&failed, &worker, asking) {
                    continue;
                }
                return Ok(app::failure(pool, &failed, worker.slot(), begun, asking));
            }
        }
    };
    asking.answered_by(AnsweredBy {
        address: format!("app:{}:{}", settings.name, worker.slot()).into(),
        took: begun.elapsed(),
    });
    app::count(pool, answered.status, begun);
    // A worker has the files of a form until its head has come; it has moved those that it keeps.
    drop(form);
    let mut answer = app::hand_back(place, answered, exchange.into(), method, asking).await?;
    end_with_code(&mut answer.response, Some(worker.parting()), None);
    Ok(answer)
}

/// Reads the body of a form; `None` for bodies of other kinds.
async fn form(body: &Outgoing, settings: &Settings, request: &Request) -> Result<Option<Form>, BadForm> {
    let Some(kind) = request.header("content-type").and_then(is_form) else { return Ok(None) };
    if matches!(request.method(), Method::Get | Method::Head | Method::Options) {
        return Ok(None);
    }
    let replayed = || match body {
        Outgoing::Whole(bytes) => RequestBody::from(bytes.clone()),
        Outgoing::Kept(all) => all.body(),
        Outgoing::Once(_) => RequestBody::empty(),
    };
    match kind {
        None => {
            let most = usize::try_from(FORM_BYTES_MAX).unwrap_or(usize::MAX);
            let bytes = replayed().bytes(most).await;
            urlencoded(&bytes.map_err(|why| BadForm::Malformed(why.to_string()))?).map(Some)
        }
        Some(boundary) => {
            multipart(&boundary, replayed(), &std::env::temp_dir(), settings.user).await.map(Some)
        }
    }
}

/// Most bytes of a form without files.
const FORM_BYTES_MAX: u64 = 16 << 20;
