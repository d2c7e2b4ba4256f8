//! End-to-end tests, each on beds of its own. They are one program, because they wait most of the
//! time and so run side by side: as many as `TENON_BED_SLOTS` and cargo's test threads allow.

mod api_faults;
mod api_refusals;
mod authentication;
mod bed;
mod checks;
mod cold_start;
mod control_plane;
mod crd_cases;
mod dashboard;
mod decisions;
mod devices;
mod disruption;
mod every_check;
mod gates;
mod guide;
mod inside;
mod installation;
mod kubelet;
mod machines;
mod nominations;
mod oracle;
mod placement_groups;
mod preflight;
mod readme;
mod recovery;
mod release;
mod requests;
mod scale;
mod seeds;
mod simulate;
mod terminal;
mod up;
mod verdicts;
mod windows;
mod zonal_shift;
