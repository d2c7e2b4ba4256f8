//! The distance from admission: the constraint that excludes a pod from a NodePool, with the
//! closest instance type.

use std::collections::BTreeMap;

use fixedbitset::FixedBitSet;

use super::MachineSpec;
use crate::plan::Exclusion;
use crate::requirements::Requirements;
use crate::snapshot::CapacityType;
use crate::tables::Tables;
use crate::tables::types::NOT_FOR_SALE;

/// The maximum number of unavailable offerings that a reason names.
const NAMED_OFFERINGS: usize = 6;

/// The resource with the largest shortage if no type of a spec holds a request.
#[expect(clippy::cast_precision_loss, reason = "a ratio for comparison")]
pub(crate) fn shortage(tables: &Tables<'_>, spec: &MachineSpec, requests: &[i64]) -> Exclusion {
    let template = &tables.templates[spec.template];
    let table = &tables.catalogs[template.catalog];
    let largest = |column: usize| template.fitting.most(&spec.types, column);
    let ratio = |want: i64, have: i64| want as f64 / have.max(1) as f64;
    let worst = (0..requests.len())
        .map(|column| (column, requests[column], largest(column)))
        .filter(|&(_, requested, largest)| requested > largest)
        .max_by(|a, b| ratio(a.1, a.2).total_cmp(&ratio(b.1, b.2)).then(b.0.cmp(&a.0)));
    // By how much a type is too small, all resources together, each as a share of what is asked.
    let lacks = |kind: usize| {
        let short = requests.iter().zip(template.net(kind)).filter(|&(&want, &have)| want > have);
        short.map(|(&want, &have)| (want - have) as f64 / want as f64).sum::<f64>()
    };
    let candidates = spec.types.ones().map(|kind| (lacks(kind), spec.price(kind), kind));
    let closest = candidates.min_by(|a, b| a.0.total_cmp(&b.0).then((a.1, a.2).cmp(&(b.1, b.2))));
    let name = |kind: usize| table.names[kind].clone();
    let Some((column, requested, largest)) = worst else {
        if let Some((_, _, kind)) = closest.filter(|&(lack, ..)| lack > 0.0) {
            // Each amount fits some type, but not all of them one.
            let column = shortest(requests, template.net(kind));
            return Exclusion::Resources {
                resource: tables.columns.name(column).to_owned(),
                requested: requests[column],
                largest: template.net(kind)[column],
                closest: Some(name(kind)),
                missing: missing(tables, requests, template.net(kind)),
            };
        }
        return Exclusion::Pod(
            "daemons use its host ports on every instance type that is large enough".to_owned(),
        );
    };
    let closest = closest.map(|(_, _, kind)| kind);
    Exclusion::Resources {
        resource: tables.columns.name(column).to_owned(),
        requested,
        largest,
        closest: closest.map(name),
        missing: closest
            .map(|kind| missing(tables, requests, template.net(kind)))
            .unwrap_or_default(),
    }
}

/// The column with the largest shortage relative to the request.
#[expect(clippy::cast_precision_loss, reason = "a ratio for comparison")]
fn shortest(requests: &[i64], room: &[i64]) -> usize {
    let share = |column: usize| {
        (requests[column] - room[column]).max(0) as f64 / requests[column].max(1) as f64
    };
    let columns = 0..requests.len();
    columns.max_by(|&a, &b| share(a).total_cmp(&share(b)).then(b.cmp(&a))).unwrap_or(0)
}

fn missing(tables: &Tables<'_>, requests: &[i64], room: &[i64]) -> BTreeMap<String, i64> {
    let rows = requests.iter().zip(room).enumerate();
    rows.filter(|(_, (want, have))| want > have)
        .map(|(column, (want, have))| (tables.columns.name(column).to_owned(), want - have))
        .collect()
}

/// Why none of some types of a template can be launched: none meets the requirements, or none that
/// does has an available offering.
pub(super) fn no_type(
    tables: &Tables<'_>,
    template: usize,
    requirements: &Requirements,
    markets: &FixedBitSet,
    candidates: &FixedBitSet,
) -> Exclusion {
    let table = &tables.catalogs[tables.templates[template].catalog];
    let symbols = &tables.symbols;
    let differs = |kind: usize| -> Vec<String> {
        requirements
            .iter()
            .filter(|(key, set)| {
                let mut one = Requirements::default();
                one.replace(*key, (*set).clone());
                table.requirements[kind].intersects(&one, symbols).is_err()
            })
            .map(|(key, _)| symbols.key_name(key).to_owned())
            .collect()
    };
    let mut ranked: Vec<(Vec<String>, usize)> =
        candidates.ones().map(|kind| (differs(kind), kind)).collect();
    ranked.sort_by_key(|(differs, kind)| (differs.len(), *kind));
    let Some((mut differs, kind)) = ranked.into_iter().next() else {
        return Exclusion::NoInstanceType { closest: None, differs: Vec::new() };
    };
    let closest = Some(table.names[kind].clone());
    if !differs.is_empty() {
        differs.sort_unstable();
        return Exclusion::NoInstanceType { closest, differs };
    }
    let zone = symbols.find_key(crate::label::ZONE);
    let mut sold_out: Vec<String> = markets
        .ones()
        .filter(|&market| table.prices(kind)[market] == NOT_FOR_SALE)
        .map(|market| {
            let market = &table.markets[market];
            let zone = zone.and_then(|zone| market.requirements.get(zone));
            let zone = zone.map(|zone| zone.names(symbols).join(" ")).unwrap_or_default();
            format!("{}/{zone}", CapacityType::as_str(market.capacity_type))
        })
        .collect();
    sold_out.sort_unstable();
    sold_out.dedup();
    sold_out.truncate(NAMED_OFFERINGS);
    Exclusion::NoOffering { closest, sold_out }
}
