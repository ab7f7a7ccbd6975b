//! What every driver promises alike.

mod echo;
