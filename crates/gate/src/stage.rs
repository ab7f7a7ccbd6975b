//! The stages of a request's way, in their order.

/// Where a step stands on a request's way. Steps take the request in the order of their stages, and the
/// answer in the reverse order. Only the steps that have taken the request take its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Stage {
    /// Request id, trace: before the route is chosen, for every request.
    Identify,
    /// What every answer of a route gets, refusals of later stages included: error pages, header lines,
    /// compression. A preflight request is answered here, since it carries no credentials.
    Shape,
    /// Address lists, limits of one address.
    Admit,
    /// Keys, passwords, tokens.
    Authenticate,
    /// Limits of an authenticated caller.
    Quota,
    /// Changes of the request on its way to the endpoint: path, header lines.
    Rewrite,
    /// Cache: it sees the request as the endpoint would.
    Store,
}
