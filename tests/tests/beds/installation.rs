//! What the installer does from the first question to the last proof, and the demo that goes
//! through all of it. One program, so that two beds run at a time.

mod adopt;
mod calls;
mod command;
mod demo;
mod install;
mod kops;
mod migrate_cas;
mod migrate_nth;
mod modes;
mod partial;
mod removal;
mod upgrade;
