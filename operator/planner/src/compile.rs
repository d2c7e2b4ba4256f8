//! A snapshot as dense tables, the input of the solver.
//!
//! Names become ids, requirements become value sets over ids, amounts become rows of integers with
//! one column per resource. Instance types, machines and shapes are tables (struct of arrays); a
//! pod is an index. Everything here is immutable while a plan is made.

pub(crate) mod by_value;
pub(crate) mod daemons;
pub(crate) mod fitting;
pub(crate) mod machines;
pub(crate) mod shapes;
pub(crate) mod taints;
pub(crate) mod types;
pub(crate) mod variants;
pub(crate) mod volumes;

use std::collections::BTreeSet;

use indexmap::IndexSet;
use rustc_hash::FxBuildHasher;

use crate::devices;
use crate::intern::{Key, Symbols};
use crate::label;
use crate::plan::SkippedPool;
use crate::policy::Policy;
use crate::requirements::Requirements;
use crate::resources::Resources;
use crate::snapshot::{NodePhase, PodShape, Snapshot};
use crate::topology::{Domains, Rules};
use by_value::ByValue;
use daemons::Daemons;
use machines::{Machines, PodsOn};
use shapes::{Class, Shape};
use types::{Kits, Template, TypeTable};

/// Ids of the keys in [`label`] that need no look-up; they are interned first, so their ids are
/// constant.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WellKnownKeys {
    pub(crate) capacity_type: Key,
    pub(crate) instance_type: Key,
    pub(crate) hostname: Key,
    pub(crate) registered: Key,
    pub(crate) initialized: Key,
}

/// The first columns.
const BASE: [&str; 4] = ["cpu", "memory", "ephemeral-storage", "pods"];

/// The columns of amounts.
#[derive(Debug, Default)]
pub(crate) struct Columns {
    names: IndexSet<String, FxBuildHasher>,
    /// The first column that counts volumes: one per CSI driver, after all resources.
    volumes: usize,
    /// The drivers of these columns.
    drivers: Vec<String>,
}

impl Columns {
    fn collect(snapshot: &Snapshot) -> Self {
        let mut columns = Self::default();
        columns.names.extend(BASE.map(str::to_owned));
        let mut use_all = |amounts: &Resources| {
            for name in amounts.extended.keys() {
                if !columns.names.contains(name) {
                    columns.names.insert(name.clone());
                }
            }
        };
        snapshot.shapes.iter().for_each(|shape| use_all(&shape.requests));
        snapshot.daemon_sets.iter().for_each(|daemon| use_all(&daemon.shape.requests));
        snapshot.nodes.iter().for_each(|node| {
            use_all(&node.allocatable);
            use_all(&node.capacity);
        });
        for catalog in &snapshot.catalogs {
            catalog.instance_types.iter().for_each(|kind| use_all(&kind.capacity));
        }
        for pool in &snapshot.node_pools {
            for name in pool.limits.keys().filter(|name| *name != "nodes") {
                columns.names.insert(name.clone());
            }
        }
        columns.volumes = columns.names.len();
        let all = snapshot.shapes.iter().chain(snapshot.daemon_sets.iter().map(|set| &set.shape));
        let drivers: BTreeSet<&String> = all
            .flat_map(|shape| {
                let shared = shape.shared_volumes.iter().map(|volume| &volume.driver);
                shape.volumes.keys().chain(shared)
            })
            .collect();
        for driver in drivers {
            columns.names.insert(volumes::column(driver));
            columns.drivers.push(driver.clone());
        }
        columns
    }

    /// The columns that count volumes, each with its CSI driver.
    pub(crate) fn drivers(&self) -> impl Iterator<Item = (usize, &str)> {
        (self.volumes..).zip(self.drivers.iter().map(String::as_str))
    }

    /// The requests of a pod of a shape. A shared volume counts as if the pod were its only user.
    pub(crate) fn row_of(&self, shape: &PodShape) -> Vec<i64> {
        let mut row = self.row(&shape.requests);
        for (column, driver) in self.drivers() {
            let own = shape.volumes.get(driver).copied().map_or(0, i64::from);
            row[column] = own + volumes::shared(shape, driver);
        }
        row
    }

    /// The number of columns of a row.
    pub(crate) fn len(&self) -> usize {
        self.names.len()
    }

    /// The column of a resource.
    pub(crate) fn index(&self, name: &str) -> Option<usize> {
        self.names.get_index_of(name)
    }

    /// The resource of a column, by Kubernetes' name.
    pub(crate) fn name(&self, column: usize) -> &str {
        &self.names[column]
    }

    /// Amounts as a row.
    pub(crate) fn row(&self, amounts: &Resources) -> Vec<i64> {
        let mut row = Vec::with_capacity(self.len());
        self.extend_row(amounts, &mut row);
        row
    }

    /// Adds amounts as a row to others.
    pub(crate) fn extend_row(&self, amounts: &Resources, rows: &mut Vec<i64>) {
        let Resources { cpu, memory, ephemeral_storage, pods, extended } = amounts;
        rows.extend([cpu, memory, ephemeral_storage, pods]);
        rows.extend(
            self.names[BASE.len()..].iter().map(|name| extended.get(name).copied().unwrap_or(0)),
        );
    }

    /// A row as amounts.
    pub(crate) fn amounts(&self, row: &[i64]) -> Resources {
        let mut amounts = Resources::default();
        for (name, &amount) in self.names.iter().zip(row).take(self.volumes) {
            if amount != 0 {
                amounts.set(name, amount);
            }
        }
        amounts
    }
}

/// The compiled snapshot with its policy.
#[derive(Debug)]
pub(crate) struct Problem<'a> {
    pub(crate) snapshot: &'a Snapshot,
    pub(crate) policy: &'a Policy,
    pub(crate) symbols: Symbols,
    pub(crate) keys: WellKnownKeys,
    pub(crate) columns: Columns,
    /// By key: whether planned machines define the label (well-known labels).
    well_known: Vec<bool>,
    pub(crate) catalogs: Vec<TypeTable>,
    /// NodePools that may launch, the heaviest first.
    pub(crate) templates: Vec<Template>,
    /// The templates by what they require.
    pub(crate) by_value: ByValue,
    /// NodePools that may not launch, with the reason.
    pub(crate) skipped: Vec<SkippedPool>,
    pub(crate) shapes: Vec<Shape>,
    pub(crate) classes: Vec<Class>,
    pub(crate) rules: Rules,
    pub(crate) machines: Machines,
    /// Devices and claims; `None` where claims are not planned for.
    pub(crate) devices: Option<Box<devices::Table<'a>>>,
    /// Topology domains of machines.
    pub(crate) domains: Domains,
    /// Pods by the machine they are bound to.
    pub(crate) pods_on: PodsOn,
    /// Pods that may need a place, as indices of [`Snapshot::pods`].
    pub(crate) restless: Vec<usize>,
}

impl<'a> Problem<'a> {
    /// Compiles a snapshot.
    pub(crate) fn new(snapshot: &'a Snapshot, policy: &'a Policy) -> Self {
        let mut symbols = Symbols::default();
        let keys = WellKnownKeys {
            capacity_type: symbols.key(label::CAPACITY_TYPE),
            instance_type: symbols.key(label::INSTANCE_TYPE),
            hostname: symbols.key(label::HOSTNAME),
            registered: symbols.key(label::REGISTERED),
            initialized: symbols.key(label::INITIALIZED),
        };
        let columns = Columns::collect(snapshot);
        let catalogs: Vec<_> = snapshot
            .catalogs
            .iter()
            .map(|catalog| TypeTable::new(catalog, &columns, &mut symbols))
            .collect();
        let mut well_known: Vec<Key> = [
            label::NODE_POOL,
            label::ZONE,
            label::REGION,
            label::INSTANCE_TYPE,
            label::ARCH,
            label::OS,
            label::CAPACITY_TYPE,
            label::WINDOWS_BUILD,
        ]
        .iter()
        .map(|name| symbols.key(name))
        .collect();
        well_known.extend(catalogs.iter().flat_map(|catalog| catalog.keys.iter().copied()));

        let daemons = Daemons::new(snapshot, &columns, &mut symbols);
        let (shapes, classes) = shapes::compile(snapshot, policy, &columns, &mut symbols);
        let class_of: Vec<_> = shapes.iter().map(|shape| shape.class).collect();
        let preferences = policy.preferences;
        let rules = Rules::new(snapshot, &classes, &class_of, &catalogs, preferences, &mut symbols);
        let template_inputs = types::template_requirements(snapshot, &mut symbols);
        let devices = devices::Table::new(snapshot, &mut symbols);
        let asked = machines::asked(&classes, &daemons, &rules, devices.as_deref());
        let mut scan = machines::scan_pods(snapshot, &shapes, columns.len());
        let mut problem = Self {
            snapshot,
            policy,
            keys,
            columns,
            well_known: Vec::new(),
            catalogs,
            templates: Vec::new(),
            by_value: ByValue::default(),
            skipped: Vec::new(),
            shapes,
            classes,
            rules,
            machines: Machines::new(snapshot, &asked, &mut symbols),
            devices,
            domains: Domains::default(),
            pods_on: std::mem::take(&mut scan.on),
            restless: std::mem::take(&mut scan.restless),
            symbols,
        };
        problem.well_known = vec![false; problem.symbols.n_keys()];
        for key in well_known {
            problem.well_known[key.index()] = true;
        }
        let mut kits = Kits::default();
        for (pool, input) in template_inputs {
            match input.and_then(|requirements| {
                Template::new(&problem, pool, requirements, &daemons, &mut kits)
            }) {
                Ok(template) => problem.templates.push(template),
                Err(reason) => problem
                    .skipped
                    .push(SkippedPool { name: snapshot.node_pools[pool].name.clone(), reason }),
            }
        }
        problem.by_value =
            ByValue::new(problem.templates.iter().map(|template| &template.requirements));
        machines::fill_room(&mut problem, &daemons, &scan);
        problem.domains = Domains::new(&problem, &problem.rules);
        Rules::ask(&mut problem);
        problem
    }

    /// Changes the order in which machines are tried, before anything is placed.
    pub(crate) fn try_in_order(&mut self, order: Vec<usize>) {
        self.machines.sort(order);
        self.domains = Domains::new(self, &self.rules);
    }

    /// Whether planned machines define a label that neither pool nor type mentions.
    pub(crate) fn is_well_known(&self, key: Key) -> bool {
        self.well_known[key.index()]
    }

    /// Whether only the simulation uses a label.
    pub(crate) fn is_simulation_only(&self, key: Key) -> bool {
        [self.keys.registered, self.keys.initialized, self.keys.hostname].contains(&key)
    }

    /// Whether a label is restricted: it belongs to Karpenter or a provider, and users may require
    /// it only if it is well-known.
    pub(crate) fn is_restricted(&self, key: &str) -> bool {
        is_restricted(key, self.snapshot)
    }

    /// The template of a pool of the snapshot, if it may launch.
    pub(crate) fn template_of(&self, pool: &str) -> Option<usize> {
        self.templates
            .iter()
            .position(|template| self.snapshot.node_pools[template.pool].name == pool)
    }
}

/// Whether a key lies in Karpenter's own domain or in that of a provider's NodeClass, or is the
/// host name.
pub(crate) fn is_restricted(key: &str, snapshot: &Snapshot) -> bool {
    if key == label::HOSTNAME {
        return true;
    }
    let Some((domain, _)) = key.split_once('/') else { return false };
    let within = |restricted: &str| {
        domain.strip_suffix(restricted).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
    };
    within("karpenter.sh")
        || snapshot.node_pools.iter().any(|pool| within(&pool.template.node_class.group))
}

/// Whether a row of requests fits into a row of room; a row of room with a negative amount takes
/// nothing.
pub(crate) fn fits(requests: &[i64], room: &[i64]) -> bool {
    requests.iter().zip(room).all(|(&want, &have)| want <= have && have >= 0)
}

/// How many times a row of requests fits into a row of room.
pub(crate) fn times(requests: &[i64], room: &[i64]) -> usize {
    let mut times = i64::MAX;
    for (&want, &have) in requests.iter().zip(room) {
        if have < 0 {
            return 0;
        }
        if want > 0 {
            times = times.min(have / want);
        }
    }
    usize::try_from(times).unwrap_or(usize::MAX)
}

/// `row += n × other`.
pub(crate) fn add_times(row: &mut [i64], other: &[i64], n: usize) {
    let n = i64::try_from(n).unwrap_or(i64::MAX);
    for (amount, &more) in row.iter_mut().zip(other) {
        *amount = amount.saturating_add(more.saturating_mul(n));
    }
}

/// `row -= n × other`.
pub(crate) fn take_times(row: &mut [i64], other: &[i64], n: usize) {
    let n = i64::try_from(n).unwrap_or(i64::MAX);
    for (amount, &less) in row.iter_mut().zip(other) {
        *amount = amount.saturating_sub(less.saturating_mul(n));
    }
}

/// Whether the labels of a machine or, before it has any, the requirements of its claim meet a set;
/// an undefined label does not meet it.
pub(crate) fn machine_meets(problem: &Problem<'_>, machine: usize, wanted: &Requirements) -> bool {
    let symbols = &problem.symbols;
    let pending = problem.snapshot.nodes[machine].phase == NodePhase::Pending;
    wanted.iter().all(|(key, set)| match problem.machines.label(machine, key) {
        Some(value) => set.has(value, symbols),
        None if pending => match problem.machines.promised(machine, key) {
            Some(promised) => promised.is_subset(set, symbols),
            None => set.admits_absence(),
        },
        None => set.admits_absence(),
    })
}
