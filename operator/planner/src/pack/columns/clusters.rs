//! Which kinds of pods are weighed as one: with hundreds of them every step would cost too much,
//! and what is bought of loads of clusters is dealt out pod by pod afterwards ([`super::dealing`]).

/// A kind of pods as a point.
#[derive(Clone, Copy, Debug)]
pub(super) struct Point {
    /// Kinds that differ in this are never weighed as one.
    pub(super) class: usize,
    pub(super) pods: f64,
    /// Processors and memory, as shares of what all pods request.
    pub(super) shares: [f64; 2],
}

/// Pods that are weighed as one, and how far they are from each other.
struct Cluster {
    members: Vec<usize>,
    spread: f64,
    /// Along what it had better be cut, and where.
    cut: (usize, f64),
}

/// At most so many clusters, or one of each class where these are more: the cluster whose pods are
/// farthest from each other is cut in two again and again.
pub(super) fn clusters(points: &[Point], most: usize) -> Vec<Vec<usize>> {
    if points.len() <= most {
        return (0..points.len()).map(|point| vec![point]).collect();
    }
    let mut order: Vec<usize> = (0..points.len()).collect();
    order.sort_by_key(|&point| (points[point].class, point));
    let mut clusters: Vec<Cluster> = order
        .chunk_by(|&a, &b| points[a].class == points[b].class)
        .map(|members| Cluster::new(points, members.to_vec()))
        .collect();
    while clusters.len() < most {
        let widest = (0..clusters.len())
            .max_by(|&a, &b| clusters[a].spread.total_cmp(&clusters[b].spread).then(b.cmp(&a)));
        let Some(widest) = widest.filter(|&it| clusters[it].spread > 0.0) else { break };
        let (axis, at) = clusters[widest].cut;
        let (low, high): (Vec<usize>, Vec<usize>) =
            clusters[widest].members.iter().partition(|&&point| points[point].shares[axis] <= at);
        if low.is_empty() || high.is_empty() {
            clusters[widest].spread = 0.0;
            continue;
        }
        clusters[widest] = Cluster::new(points, low);
        clusters.push(Cluster::new(points, high));
    }
    let mut members: Vec<Vec<usize>> = clusters.into_iter().map(|it| it.members).collect();
    members.sort_unstable();
    members
}

impl Cluster {
    fn new(points: &[Point], members: Vec<usize>) -> Self {
        let of = |axis: usize| {
            let all = members.iter().map(|&point| &points[point]);
            let pods: f64 = all.clone().map(|it| it.pods).sum();
            let mean = all.clone().map(|it| it.pods * it.shares[axis]).sum::<f64>() / pods.max(1.0);
            let spread: f64 =
                all.map(|it| it.pods * (it.shares[axis] - mean).abs().powf(1.5)).sum();
            (spread, mean)
        };
        let [cpu, memory] = [of(0), of(1)];
        let axis = usize::from(memory.0 > cpu.0);
        let spread = if members.len() > 1 { cpu.0 + memory.0 } else { 0.0 };
        Self { members, spread, cut: (axis, [cpu.1, memory.1][axis]) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_that_are_nearly_the_same_are_together_and_classes_are_not() {
        let point = |class, cpu, memory| Point { class, pods: 3.0, shares: [cpu, memory] };
        let points = [
            point(0, 0.10, 0.01),
            point(0, 0.01, 0.10),
            point(0, 0.10, 0.011),
            point(1, 0.10, 0.01),
            point(0, 0.011, 0.10),
        ];
        assert_eq!(clusters(&points, 3), [vec![0, 2], vec![1, 4], vec![3]]);
        assert_eq!(clusters(&points, 5).len(), 5);
        assert_eq!(clusters(&points, 1).len(), 2, "classes stay apart");
        let same = [point(0, 0.1, 0.1); 4];
        assert_eq!(clusters(&same, 2), [[0, 1, 2, 3]], "there is nothing to cut");
    }
}
