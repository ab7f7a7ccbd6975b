//! What every driver promises alike.

mod dump;
mod echo;
mod fairness;
mod limits;
mod threads;
