//! What the installer does from the first question to the last proof, and the story that goes through all of it. One program, so that two beds run at a time.

mod adopt;
mod calls;
mod install;
mod modes;
mod partial;
mod removal;
mod story;
mod terminal;
mod upgrade;
