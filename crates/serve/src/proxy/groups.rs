//! Groups of upstream servers for steps that send requests of their own: one worker's.

use super::{Proxies, ProxyRoute};
use crate::config::{Config, Kind, Proxy, Route};
use crate::page;
use ringroad_gate::chain::Later;
use ringroad_gate::flow::Flow;
use ringroad_gate::groups::Groups;
use ringroad_gate::routes::Match;
use ringroad_gate::steps::Steps;
use ringroad_gate::upstream::Group;
use ringroad_http::{Response, Status};
use std::rc::Rc;
use std::sync::Arc;

/// The groups that features of a configuration name.
pub(crate) struct Reached {
    proxies: Rc<Proxies>,
    /// A route without steps for each group, which hands the request on as it is.
    routes: Vec<Rc<ProxyRoute>>,
}

impl Reached {
    /// Takes the groups that features name; `None` where there are none.
    pub(crate) fn of(
        config: &Config,
        groups: &[Arc<Group>],
        proxies: &Rc<Proxies>,
    ) -> Option<Rc<dyn Groups>> {
        let subject = config.tls.as_ref().and_then(|tls| tls.subject_header.clone());
        let mut routes: Vec<Rc<ProxyRoute>> = Vec::new();
        for (_, name) in config.routes.iter().flat_map(|route| route.steps.upstreams()) {
            let group = groups.iter().find(|group| group.name() == name);
            let (Some(group), Some(to)) = (group, config.upstream(name)) else { continue };
            if routes.iter().any(|route| route.group.name() == name) {
                continue;
            }
            let proxy = Proxy {
                to: Arc::clone(to),
                path: None,
                host: None,
                trust_forwarded: false,
                map_locations: true,
                buffer: Some(config.buffer.clone()),
            };
            let (when, steps) = (Match::default(), Steps::default());
            let route = Route { when, name: None, logged: false, steps, kind: Kind::Proxy(proxy) };
            let (route, group, subject) = (Arc::new(route), Arc::clone(group), subject.clone());
            routes.push(Rc::new(ProxyRoute { route, group, subject, parting: None }));
        }
        (!routes.is_empty())
            .then(|| Rc::new(Reached { proxies: Rc::clone(proxies), routes }) as Rc<dyn Groups>)
    }
}

impl Groups for Reached {
    fn ask(&self, group: &str, mut flow: Flow) -> Later<'static, (Flow, Response)> {
        let (proxies, name) = (Rc::clone(&self.proxies), group.to_owned());
        let route = self.routes.iter().find(|route| route.group.name() == group).map(Rc::clone);
        Box::pin(async move {
            let Some(route) = route else {
                flow.context.fault(format!("there is no [upstream.{name}]"));
                let what = "There is no server for this request.";
                let refusal = page::refusal(Status::SERVICE_UNAVAILABLE, &flow.context, what);
                return (flow, refusal.response);
            };
            match proxies.answer(&route, &mut flow.request, &flow.context).await {
                Ok(answer) => (flow, answer.response),
                Err(why) => {
                    flow.context.fault(format!("writing the answer: {why}"));
                    (flow, page::broken())
                }
            }
        })
    }
}
