//! What a machine's processors and memory are worth to some pods: the least prices at which no pod
//! could be had for less than its value.

/// Unit prices of one machine, and the pods that set them.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Units {
    /// What all processors and all memory of the machine are worth.
    pub(crate) worth: [f64; 2],
    /// Pods that cost there what they are worth; together they fill the machine. One alone where
    /// the other resource is worth nothing.
    tight: [Option<usize>; 2],
}

/// A pod as a line: what it takes of the machine, and its value.
#[derive(Clone, Copy)]
struct Line {
    shares: [f64; 2],
    value: f64,
    item: Option<usize>,
}

/// How often the two pods are looked for; a few times are enough.
const STEPS: usize = 40;

impl Units {
    /// `worth[0] + worth[1]` is the most that pods on the machine can be worth, when they may be
    /// cut into pieces and there is no end of them.
    pub(crate) fn new(
        room: [f64; 2],
        items: &[usize],
        requests: &[[f64; 2]],
        values: &[f64],
    ) -> Self {
        let scale = room.map(|amount| 1.0 / amount);
        let line = |item: usize| {
            let [cpu, memory] = requests[item];
            let shares = [cpu * scale[0], memory * scale[1]];
            Line { shares, value: values[item], item: Some(item) }
        };
        // Nothing costs less than nothing: that is like a pod without value that takes but one
        // resource.
        let mut pair = [
            Line { shares: [1.0, 0.0], value: 0.0, item: None },
            Line { shares: [0.0, 1.0], value: 0.0, item: None },
        ];
        let mut worth = [1.0, 1.0];
        for step in 0..STEPS {
            let mut most = (if step == 0 { 0.0 } else { 1.0 + 1e-9 }, None);
            for &item in items {
                let Line { shares, value, .. } = line(item);
                let cost = worth[0] * shares[0] + worth[1] * shares[1];
                if value > most.0 * cost && value > 0.0 {
                    most = (if cost > 0.0 { value / cost } else { f64::INFINITY }, Some(item));
                }
            }
            let Some(item) = most.1 else { break };
            let line = line(item);
            let side = usize::from(line.shares[0] < line.shares[1]);
            pair[side] = line;
            worth = meet(pair).unwrap_or_else(|| {
                pair[1 - side].item = None;
                let [cpu, memory] = line.shares;
                let each = line.value / (cpu + memory).max(f64::MIN_POSITIVE);
                [each, each]
            });
        }
        if pair.iter().all(|line| line.item.is_none()) {
            worth = [0.0, 0.0];
        }
        Self { worth, tight: pair.map(|line| line.item) }
    }

    /// How many of the tight pods fill the machine.
    pub(super) fn load(
        &self,
        room: [f64; 2],
        requests: &[[f64; 2]],
    ) -> impl Iterator<Item = (usize, f64)> {
        let takes = |item: usize| [0, 1].map(|at| requests[item][at] / room[at]);
        let alone = |item: usize| {
            let [cpu, memory] = takes(item);
            (item, 1.0 / cpu.max(memory).max(f64::MIN_POSITIVE))
        };
        let pair = match self.tight {
            [Some(one), Some(other)] => {
                let (a, b) = (takes(one), takes(other));
                let det = a[0] * b[1] - a[1] * b[0];
                if det.abs() < 1e-15 {
                    [Some(alone(one)), None]
                } else {
                    let (of_one, of_other) = ((b[1] - b[0]) / det, (a[0] - a[1]) / det);
                    [Some((one, of_one)), Some((other, of_other))]
                }
            }
            [one, other] => [one.or(other).map(alone), None],
        };
        pair.into_iter().flatten().filter(|&(_, n)| n > 1e-12)
    }

    /// The share of a price that the processors get.
    pub(super) fn split(&self) -> f64 {
        let [cpu, memory] = self.worth;
        let all = cpu + memory;
        if all > 0.0 { (cpu / all).clamp(0.0, 1.0) } else { 0.5 }
    }
}

/// The unit prices at which both pods cost what they are worth.
fn meet([one, other]: [Line; 2]) -> Option<[f64; 2]> {
    let det = one.shares[0] * other.shares[1] - one.shares[1] * other.shares[0];
    if det.abs() < 1e-15 {
        return None;
    }
    let cpu = (one.value * other.shares[1] - one.shares[1] * other.value) / det;
    let memory = (one.shares[0] * other.value - one.value * other.shares[0]) / det;
    Some([cpu.max(0.0), memory.max(0.0)])
}
