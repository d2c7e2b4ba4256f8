//! Tests of the planner as a whole.

mod behaviour;
mod properties;
mod scenarios;
mod world;
