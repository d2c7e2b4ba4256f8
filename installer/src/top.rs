//! `tenon top`: the cluster on a terminal, as it changes.
//!
//! What is known is one value ([`State`]), what is shown of it another ([`view::View`]). A screen
//! is a function of both ([`draw`](mod@draw)), and so is what a key does ([`keys`](mod@keys)).
//! Neither calls anything: what has to be done comes out as an [`Action`], and what happened comes
//! in as [`News`].

mod draw;
mod item;
mod keys;
mod pane;
mod run;
mod state;
mod terminal;
#[cfg(test)]
mod tests;
mod text;
mod typed;
mod view;

pub(crate) use self::draw::Palette;
pub(crate) use self::keys::Action;
pub(crate) use self::run::{Inputs, run};
pub(crate) use self::state::{News, Pause, State};
pub(crate) use self::terminal::{Screen, keys};
