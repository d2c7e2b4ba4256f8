//! Tests of the planner as a whole.

mod behaviour;
mod disrupting;
mod properties;
mod scenarios;
mod shrinking;
mod world;
