//! Tests of the planner as a whole.

mod behaviour;
mod buffers;
mod disrupting;
mod formats;
mod mutations;
mod overlays;
mod partial;
mod price;
mod properties;
mod reserved;
mod scenarios;
mod scheduling;
mod shrinking;
mod volumes;
mod world;
