//! How long pods take to be bound and to start.

use crate::clock::Clock;
use crate::metrics::Metrics;
use crate::state::State;
use crate::state::change::Touched;

/// Observes pods from now on. What was there before the first look is not measured.
pub fn observe(state: &State, metrics: Metrics, clock: Clock) {
    state.subscribe(move |touched| {
        let Touched::Pod(_, event) = touched else { return };
        let age = |created| clock.now().duration_since(created).as_secs_f64();
        if let Some(created) = event.bound {
            metrics.pod_bound_duration.observe(["false"], age(created));
        }
        if let Some(created) = event.started {
            metrics.pod_startup_duration.observe([], age(created));
        }
    });
}
