//! Each metric is declared once, with its name, labels and help: stored ones by [`families!`],
//! which makes a struct of them, computed ones as constants of type [`Declared`]. Tests compare the
//! declarations with upstream's metrics and with what is exposed.

/// A metric as it is exposed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Declared {
    /// The full name, of counters with `_total`.
    pub name: &'static str,
    /// Names of the labels that its series have.
    pub labels: &'static [&'static str],
    /// What it tells.
    pub help: &'static str,
}

/// Declares a struct of families. A field is written as
///
/// ```text
/// /// Help, a line or more
/// pub drained: counters("karpenter_nodes_drained_total", ["nodepool"]),
/// ```
///
/// with `counters`, `amounts`, `gauges`, `summaries`, or `histograms`, which have a third argument,
/// the buckets. Its type is [`Counters`](super::Counters) and so on, for that many labels, and
/// values of labels are given in the order of their names. `new` registers the families.
macro_rules! families {
    (
        $(#[$meta:meta])*
        $vis:vis struct $struct:ident {
            $(
                $(#[doc = $help:literal])+
                $field_vis:vis $field:ident:
                    $kind:ident($name:literal, [$($label:literal),*] $(, $buckets:expr)? $(,)?),
            )+
        }
    ) => {
        $(#[$meta])*
        $vis struct $struct {
            $(
                $(#[doc = $help])+
                #[doc = concat!("\n`", $name, "{", $($label, ",",)* "}`")]
                $field_vis $field: $crate::metrics::declare::families!(@type $kind $($label)*),
            )+
        }

        impl $struct {
            /// Registers the families.
            pub(crate) fn new(registry: &impl AsRef<$crate::metrics::Registry>) -> Self {
                let registry = registry.as_ref();
                Self {
                    $(
                        $field: registry.$kind(
                            $name,
                            concat!($($help),+).trim_ascii_start(),
                            [$($label),*],
                            $($buckets)?
                        ),
                    )+
                }
            }
        }
    };
    (@type counters $($label:literal)*) => {
        $crate::metrics::Counters<{ <[&str]>::len(&[$($label),*]) }>
    };
    (@type amounts $($label:literal)*) => {
        $crate::metrics::Amounts<{ <[&str]>::len(&[$($label),*]) }>
    };
    (@type gauges $($label:literal)*) => {
        $crate::metrics::Gauges<{ <[&str]>::len(&[$($label),*]) }>
    };
    (@type histograms $($label:literal)*) => {
        $crate::metrics::Histograms<{ <[&str]>::len(&[$($label),*]) }>
    };
    (@type summaries $($label:literal)*) => {
        $crate::metrics::summary::Summaries<{ <[&str]>::len(&[$($label),*]) }>
    };
}

pub(crate) use families;

/// Asserts that the samples of these metrics in `text` have the labels that are declared, and that
/// each metric has a sample.
#[cfg(test)]
pub(crate) fn assert_exposed_as_declared(text: &str, declared: &[Declared]) {
    for Declared { name, labels, .. } in declared {
        let mut samples = text
            .lines()
            .filter_map(|line| line.strip_prefix(name))
            .filter(|rest| rest.starts_with(['{', ' ']))
            .peekable();
        assert!(samples.peek().is_some(), "no sample of {name} in\n{text}");
        for sample in samples {
            // No value in these tests contains a quotation mark or a comma before one.
            let got = sample.split('"').step_by(2).filter_map(|part| part.strip_suffix('='));
            let got: Vec<&str> = got.map(|name| name.trim_start_matches(['{', ','])).collect();
            assert_eq!(got, *labels, "labels of {name}");
        }
    }
}
