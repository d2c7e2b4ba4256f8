//! Makes what a release publishes, from built programs and the checkout: archives, the operator's
//! image as an OCI layout, charts, SBOMs, checksums. And speaks to registries, for `cargo release
//! push` and for the test bed's kubelet. `docs/src/design/release.md` says why it is made so.
//!
//! Same input, same bytes: nothing here asks for the time, iterates in another order than that of
//! names, or keeps an owner of this machine.

pub mod archive;
pub mod charts;
pub mod cli;

pub mod error;
pub mod image;
pub mod layout;
mod needs;
mod provenance;
pub mod proxy;
pub mod registry;
mod sbom;
mod tree;
pub mod unpack;
