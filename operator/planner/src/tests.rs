//! Tests of the planner as a whole.

mod behaviour;
mod bounds;
mod buffers;
mod consolidating;
mod deleting;
mod devices;
mod disrupting;
mod formats;
mod garbage;
mod mutations;
mod oracle;
mod overlays;
mod partial;
mod price;
mod properties;
mod relocating;
mod repairing;
mod reserved;
mod scenarios;
mod scheduling;
mod shrinking;
mod static_capacity;
mod terminating_first;
mod volumes;
mod world;
mod zones;
