//! The operator comes right again, whatever happens to it and around it. Both tests wait most of
//! the time, so they share their minutes: one program, two beds.

mod faults;
mod interruptions;
mod kills;
mod reservations;
mod setup;
