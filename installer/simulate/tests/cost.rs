//! What `tenon cost` shows of a cluster.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde_json::Value;
use tenon_simulate::{
    CatalogOptions, CommitmentKind, Commitments, Cost, CostBy, CostRow, Costs, Freshness, Options,
    Savings, SimulateError, read_costs,
};
use tenon_state::decision::Decisions;
use tenon_state::options::FeatureGates;

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(name)
}

fn read(files: Vec<PathBuf>, catalogs: Vec<PathBuf>, by: &str) -> Result<Costs, SimulateError> {
    let live = Options::live(now(), FeatureGates::default());
    let options = Options {
        files,
        catalog: CatalogOptions { files: catalogs, ..live.catalog },
        freshness: Freshness::Latest,
        drain: Vec::new(),
        ..live
    };
    let by: CostBy = by.parse().expect("a known group");
    futures::executor::block_on(read_costs(options, None, by, &|_| ()))
}

fn costs(by: &str) -> Costs {
    let catalogs = vec![fixture("explain/catalog.json")];
    read(vec![fixture("cost/cluster.yaml")], catalogs, by).expect("it can be read")
}

fn cost(by: &str) -> Cost {
    costs(by).cost()
}

fn now() -> jiff::Timestamp {
    "2026-01-01T12:00:00Z".parse().expect("a time")
}

/// Two reserved instances and a Savings Plan that are active, and some that are not, or are for
/// something else.
fn commitments() -> Commitments {
    let files = ["reserved-instances", "savings-plans", "savings-plan-rates"]
        .map(|name| fixture(&format!("cost/{name}.json")));
    Commitments::read(&files, now()).expect("they can be read")
}

fn on_node_groups(groups: &[&str]) -> Cost {
    let groups = groups.iter().map(|group| group.parse().expect("a node group")).collect();
    costs("workload").on(groups).expect("the types are known").cost()
}

fn rows(cost: &Cost) -> BTreeMap<&str, &CostRow> {
    cost.rows.iter().map(|row| (row.name.as_str(), row)).collect()
}

fn close(a: f64, b: f64) -> bool {
    (a - b).abs() < 1e-9
}

#[test]
fn groups_of_every_kind_add_up_to_the_price_of_the_nodes() {
    for by in [
        "nodepool",
        "capacity-type",
        "zone",
        "instance-type",
        "namespace",
        "workload",
        "label=team",
        "label=none-has-it",
    ] {
        let cost = cost(by);
        // Two m7i.2xlarge and two m7i.large, one of each as spot.
        assert!(close(cost.total.price_per_hour, 0.4 + 0.04 + 0.16 + 0.1), "{by}: {cost:?}");
        let sum = |of: fn(&CostRow) -> f64| cost.rows.iter().map(of).sum::<f64>();
        assert!(close(sum(|row| row.price_per_hour), cost.total.price_per_hour), "{by}");
        assert!(close(sum(|row| row.idle_per_hour), cost.total.idle_per_hour), "{by}");
        assert!(close(sum(|row| row.requested_per_hour), cost.total.requested_per_hour), "{by}");
        assert_eq!(cost.rows.iter().map(|row| row.pods).sum::<usize>(), 10, "{by}");
        for row in &cost.rows {
            assert!(close(row.price_per_hour, row.requested_per_hour + row.idle_per_hour), "{by}");
            assert!(close(row.price_per_month, 730.0 * row.price_per_hour), "{by}");
        }
        let idle: f64 = cost.idle.iter().map(|idle| idle.idle_per_hour).sum();
        assert!(close(idle, cost.total.idle_per_hour), "{by}");
        assert_eq!(cost.idle.iter().map(|idle| idle.nodes).sum::<usize>(), 4, "{by}");
    }
}

#[test]
fn nodes_are_grouped_by_what_they_are() {
    let by_type = cost("capacity-type");
    let rows = rows(&by_type);
    assert!(close(rows["spot"].price_per_hour, 0.2), "{rows:?}");
    assert!(close(rows["on-demand"].price_per_hour, 0.5), "{rows:?}");
    let discount = by_type.spot.expect("there are spot nodes");
    assert_eq!(discount.nodes, 2);
    assert!(close(discount.on_demand_per_hour, 0.5), "{discount:?}");
}

#[test]
fn pods_are_grouped_by_what_people_have_created() {
    let by_workload = cost("workload");
    let rows = rows(&by_workload);
    let names: Vec<&str> = rows.keys().copied().collect();
    assert_eq!(
        names,
        [
            "data/CronJob/report",
            "kube-system/DaemonSet/agent",
            "shop/Deployment/web",
            "shop/StatefulSet/db",
        ]
    );
    assert_eq!((rows["shop/Deployment/web"].pods, rows["shop/Deployment/web"].nodes), (4, 2));
    assert_eq!(rows["kube-system/DaemonSet/agent"].nodes, 4);
    let daemons = rows["kube-system/DaemonSet/agent"].requested_per_hour;
    assert!(close(by_workload.daemon_sets_per_hour, daemons));
}

#[test]
fn pods_without_the_label_are_told_so() {
    let by_team = cost("label=team");
    let rows = rows(&by_team);
    let names: Vec<&str> = rows.keys().copied().collect();
    assert_eq!(names, ["(no label team)", "analytics", "storage", "storefront"]);
}

#[test]
fn idle_capacity_is_told_by_what_keeps_its_nodes() {
    let idle = cost("nodepool").idle;
    let of = |part: &str| {
        let found = idle.iter().find(|idle| idle.reason.contains(part));
        found.unwrap_or_else(|| panic!("{part}: {idle:?}"))
    };
    assert_eq!(of("do-not-disrupt").nodes, 1);
    assert!(of("consolidation removes or replaces").nodes >= 1, "{idle:?}");
}

#[test]
fn it_fits_terminals() {
    for width in [60, 80, 120] {
        for by in ["nodepool", "workload"] {
            for line in cost(by).text(Some(width)).lines() {
                assert!(line.chars().count() <= width, "{width}: {line}");
            }
        }
    }
    insta::assert_snapshot!("by_workload_80", cost("workload").text(Some(80)));
    insta::assert_snapshot!("by_nodepool_120", cost("nodepool").text(Some(120)));
    insta::assert_snapshot!("by_workload_60", cost("workload").text(Some(60)));
}

#[test]
fn spreadsheets_get_every_group() {
    let csv = cost("namespace").csv();
    let mut lines = csv.lines();
    let header = lines.next().expect("a header");
    assert_eq!(header.split(',').count(), 7);
    let rows: Vec<&str> = lines.collect();
    assert_eq!(rows.len(), 3);
    for row in rows {
        assert_eq!(row.split(',').count(), 7, "{row}");
    }
}

#[test]
fn nodes_without_a_price_are_counted_and_cost_nothing() {
    // The kwok provider's types are all that is known.
    let file = tempfile::Builder::new().suffix(".json").tempfile().expect("a file");
    std::fs::write(file.path(), "[]").expect("it can be written");
    let costs = read(vec![fixture("cost/cluster.yaml")], vec![file.path().to_owned()], "nodepool");
    let cost = costs.expect("it can be read").cost();
    assert_eq!(cost.without_price, 4);
    assert!(close(cost.total.price_per_hour, 0.0));
    assert!(cost.text(None).starts_with("The price of no node is known."), "{}", cost.text(None));
}

#[test]
fn a_saved_snapshot_does_not_tell_workloads() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("snapshot.json");
    costs("nodepool").simulation().save(&path).expect("it can be saved");
    let mut by_pool = read(vec![path.clone()], Vec::new(), "nodepool").expect("nodes are told");
    assert!(close(by_pool.cost().total.price_per_hour, 0.7));
    let error = read(vec![path], Vec::new(), "workload").expect_err("pods are not");
    assert!(error.hints()[0].contains("--by"), "{:?}", error.hints());
}

#[test]
fn the_manual_has_the_screen_and_every_field() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/src/reference/cost.md");
    let page = std::fs::read_to_string(page).expect("the page");
    let cost = cost("workload");
    let text = cost.text(Some(80));
    assert!(page.contains(&text), "{text}");
    let committed = costs("workload").with(commitments()).cost();
    let text = committed.text(Some(80));
    let fact = text.find("Savings Plans and").expect("it says what they pay");
    assert!(page.contains(text[fact..].trim_end()), "{}", &text[fact..]);
    let on = on_node_groups(&["m7i.2xlarge"]);
    let text = on.text(Some(80));
    let fact = text.find("A node group of").expect("it compares");
    assert!(page.contains(text[fact..].trim_end()), "{}", &text[fact..]);
    let committed = Cost { node_groups: on.node_groups, ..committed };
    let savings = Savings::new(&Decisions::default(), None);
    let value = serde_json::to_value(Cost { savings: Some(savings), ..committed }).expect("data");
    let mut names = Vec::new();
    fields(&value, &mut names);
    for name in names {
        assert!(
            page.contains(&format!("`{name}`")) || page.contains(&format!("`{name}[]`")),
            "{name}"
        );
    }
}

#[test]
fn what_was_bought_in_advance_pays_for_nodes_first() {
    for by in ["nodepool", "zone", "namespace", "workload"] {
        let cost = costs(by).with(commitments()).cost();
        // The m7i.large on demand is reserved, for 2.5 cents per hour and as much in advance; so is
        // a quarter of the m7i.2xlarge, and half of it is at the rate of the Savings Plan.
        let on_demand = 0.05 + (0.05 + 0.5 * 0.28 + 0.25 * 0.4);
        assert!(close(cost.total.price_per_hour, 0.2 + on_demand), "{by}: {cost:?}");
        let sum: f64 = cost.rows.iter().map(|row| row.price_per_hour).sum();
        assert!(close(sum, cost.total.price_per_hour), "{by}");
        let committed = cost.committed.expect("some are active");
        let kinds: Vec<CommitmentKind> = committed.commitments.iter().map(|it| it.kind).collect();
        assert_eq!(kinds, [CommitmentKind::ReservedInstances, CommitmentKind::ComputeSavingsPlan]);
        assert_eq!(committed.nodes, 2);
        assert!(close(committed.committed_per_hour, 0.1 + 0.14), "{committed:?}");
        assert!(close(committed.used_per_hour, 0.1 + 0.14), "{committed:?}");
        assert!(close(committed.on_demand_per_hour, 0.1 + 0.75 * 0.4), "{committed:?}");
        assert!(close(committed.eligible_per_hour, 0.5), "{committed:?}");
    }
    let cost = costs("nodepool");
    let earlier = "2025-01-01T00:00:00Z".parse().expect("a time");
    let files = [fixture("cost/reserved-instances.json")];
    let none = Commitments::read(&files, earlier).expect("they can be read");
    let text = cost.with(none).cost().text(None);
    assert!(text.contains("No Savings Plan"), "{text}");
}

#[test]
fn pods_are_packed_onto_node_groups() {
    let of = |groups: &[&str]| on_node_groups(groups).node_groups.expect("it was asked for");
    let large = of(&["m7i.2xlarge"]);
    assert_eq!((large.current_nodes, large.pods_without_place), (4, 0), "{large:?}");
    assert!(close(large.current_price_per_hour, 0.7), "{large:?}");
    assert!(close(large.price_per_hour, 0.4 * f64::from(u32::try_from(large.nodes).expect("few"))));
    let spot = of(&["m7i.2xlarge:spot"]);
    assert_eq!(spot.nodes, large.nodes);
    assert!(spot.price_per_hour < large.price_per_hour, "{spot:?}");
    // More to choose from is never dearer.
    let both = of(&["m7i.large", "m7i.2xlarge"]);
    assert!(both.price_per_hour <= large.price_per_hour + 1e-9, "{both:?}");
    // The pods of these NodePools want amd64.
    let arm = of(&["m7g.large"]);
    assert_eq!((arm.nodes, arm.pods_without_place), (0, 6), "{arm:?}");
    let unknown = vec!["m9.large".parse().expect("a node group")];
    let error = costs("nodepool").on(unknown).expect_err("there is none");
    assert!(error.to_string().contains("m9.large"), "{error}");
}

#[test]
fn files_that_lack_something_are_refused_with_the_reason() {
    let folder = tempfile::tempdir().expect("a folder");
    let original = |name: &str| {
        std::fs::read_to_string(fixture(&format!("cost/{name}.json"))).expect("the fixture")
    };
    let plans = original("savings-plans");
    let rates = original("savings-plan-rates");
    let reserved = original("reserved-instances");
    let paged = rates.replacen("\"searchResults\"", "\"nextToken\": \"abc\", \"searchResults\"", 1);
    for (files, expected) in [
        (vec![plans.clone()], "no file has the rates of Savings Plan 44444444"),
        (vec![plans.clone(), paged.clone()], "no file has the last page of the rates"),
        (vec![plans.replace("USD", "CNY"), rates.clone()], "prices are in CNY, not in USD"),
        (vec![plans.replace("0.14000000", "a lot"), rates.clone()], "is not a price"),
        (
            vec![reserved.replace("\"InstanceCount\": 2", "\"InstanceCount\": \"two\"")],
            "ReservedInstances[0].InstanceCount",
        ),
        (vec!["[]".to_owned()], "none of ReservedInstances, savingsPlans and searchResults"),
        (vec!["savingsPlans: []".to_owned()], "it is not JSON"),
    ] {
        let paths: Vec<PathBuf> = files
            .iter()
            .enumerate()
            .map(|(n, text)| {
                let path = folder.path().join(format!("{n}.json"));
                std::fs::write(&path, text).expect("it can be written");
                path
            })
            .collect();
        let error = Commitments::read(&paths, now()).expect_err(expected);
        assert!(error.to_string().contains(expected), "{expected}: {error}");
        assert!(error.hints()[0].contains("describe-savings-plan-rates"), "{:?}", error.hints());
    }
    // The same file twice, and pages in any order, are fine.
    let twice: Vec<PathBuf> = [&plans, &rates, &paged, &rates, &plans]
        .iter()
        .enumerate()
        .map(|(n, text)| {
            let path = folder.path().join(format!("twice-{n}.json"));
            std::fs::write(&path, text).expect("it can be written");
            path
        })
        .collect();
    let read = Commitments::read(&twice, now()).expect("all is there");
    let committed = costs("nodepool").with(read).cost().committed.expect("there is one");
    assert_eq!(committed.commitments.len(), 1);
}

#[test]
fn capacity_reservations_are_billed_as_on_demand_instances() {
    let text = std::fs::read_to_string(fixture("cost/cluster.yaml")).expect("the fixture");
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("cluster.yaml");
    for (reservation, expected) in [("default", Some(0.5)), ("capacity-block", None)] {
        let labels = format!(
            "karpenter.sh/capacity-type: reserved\n    \
             karpenter.k8s.aws/capacity-reservation-type: {reservation}"
        );
        let text = text.replace("karpenter.sh/capacity-type: on-demand", &labels);
        std::fs::write(&path, text).expect("it can be written");
        let catalogs = vec![fixture("explain/catalog.json")];
        let costs = read(vec![path.clone()], catalogs, "capacity-type");
        let mut costs = costs.expect("it can be read");
        let fleet = serde_json::to_value(costs.simulation().fleet()).expect("data");
        let shown = fleet["total"]["pricePerHour"].as_f64().expect("a price");
        assert!(close(shown, 0.2 + expected.unwrap_or(0.0)), "{reservation}: {shown}");
        let cost = costs.cost();
        let price = rows(&cost)["reserved"].price_per_hour;
        assert!(close(price, expected.unwrap_or(0.0)), "{reservation}: {price}");
        assert_eq!(cost.without_price, if expected.is_some() { 0 } else { 2 }, "{reservation}");
    }
}

/// The names of all fields.
fn fields(value: &Value, names: &mut Vec<String>) {
    match value {
        Value::Object(map) => {
            for (name, value) in map {
                names.push(name.clone());
                fields(value, names);
            }
        }
        Value::Array(items) => items.iter().for_each(|item| fields(item, names)),
        _ => {}
    }
}

/// The rows of a FOCUS dataset, by column.
fn charges(csv: &str) -> Vec<BTreeMap<String, String>> {
    let mut lines = csv.lines().map(values);
    let header = lines.next().expect("a header");
    lines
        .map(|values| {
            assert_eq!(values.len(), header.len(), "{values:?}");
            header.iter().cloned().zip(values).collect()
        })
        .collect()
}

/// The values of a line of CSV.
fn values(line: &str) -> Vec<String> {
    let (mut values, mut quoted) = (vec![String::new()], false);
    let mut characters = line.chars().peekable();
    while let Some(character) = characters.next() {
        let value = values.last_mut().expect("at least one");
        match character {
            '"' if quoted && characters.next_if_eq(&'"').is_some() => value.push('"'),
            '"' => quoted = !quoted,
            ',' if !quoted => values.push(String::new()),
            other => value.push(other),
        }
    }
    values
}

#[test]
fn a_focus_dataset_names_the_commitment_that_pays() {
    for by in ["nodepool", "workload"] {
        let total = costs(by).with(commitments()).cost().total;
        let csv = costs(by).with(commitments()).focus("123456789012").csv;
        let charges = charges(&csv);
        let sum = |column: &str, of: &str| -> f64 {
            let of = charges.iter().filter(|charge| charge["CommitmentDiscountType"] == of);
            of.map(|charge| charge[column].parse::<f64>().expect("a number")).sum()
        };
        let near = |a: f64, b: f64| (a - b).abs() < 1e-6;
        let (plan, reserved) = ("Compute Savings Plan", "Reserved Instances");
        assert!(near(sum("EffectiveCost", plan), 0.14), "{by}: {csv}");
        assert!(near(sum("EffectiveCost", reserved), 0.1), "{by}: {csv}");
        assert!(near(sum("EffectiveCost", ""), total.price_per_hour - 0.24), "{by}: {csv}");
        // The commitment itself is billed elsewhere.
        assert!(near(sum("BilledCost", plan) + sum("BilledCost", reserved), 0.0), "{by}: {csv}");
        assert!(near(sum("ContractedCost", plan), 0.5 * 0.4), "{by}: {csv}");
        let idle: f64 = ["", plan, reserved].iter().map(|of| sum("x_IdleCost", of)).sum();
        assert!(near(idle, total.idle_per_hour), "{by}: {csv}");
        let quantity: f64 = ["", plan, reserved].iter().map(|of| sum("PricingQuantity", of)).sum();
        assert!(near(quantity, 4.0), "{by}: {csv}");
        for charge in &charges {
            let is_committed = charge["PricingCategory"] == "Committed";
            for column in ["Category", "Id", "Name", "Status", "Type"] {
                let value = &charge[&format!("CommitmentDiscount{column}")];
                assert_eq!(is_committed, !value.is_empty(), "{column}: {charge:?}");
            }
        }
    }
}

/// Rules of the specification that hold for every charge.
#[test]
fn a_focus_dataset_has_the_costs_of_an_hour() {
    for by in ["nodepool", "namespace", "workload", "label=team"] {
        let focus = costs(by).focus("123456789012");
        assert_eq!(focus.without_price, 0);
        let total = cost(by).total;
        let charges = charges(&focus.csv);
        let number = |charge: &BTreeMap<String, String>, column: &str| -> f64 {
            charge[column].parse().unwrap_or_else(|_| panic!("{column}: {charge:?}"))
        };
        let sum = |column| charges.iter().map(|charge| number(charge, column)).sum::<f64>();
        let near = |a: f64, b: f64| (a - b).abs() < 1e-6;
        assert!(near(sum("EffectiveCost"), total.price_per_hour), "{by}");
        assert!(near(sum("x_IdleCost"), total.idle_per_hour), "{by}");
        assert!(near(sum("PricingQuantity"), 4.0), "{by}: four nodes for an hour");
        for charge in &charges {
            let quantity = number(charge, "PricingQuantity");
            assert!(near(number(charge, "ListUnitPrice") * quantity, number(charge, "ListCost")));
            let contracted = number(charge, "ContractedUnitPrice") * quantity;
            assert!(near(contracted, number(charge, "ContractedCost")), "{charge:?}");
            for (column, expected) in [
                ("BillingAccountId", "123456789012"),
                ("BillingCurrency", "USD"),
                ("BillingPeriodStart", "2026-01-01T00:00:00Z"),
                ("BillingPeriodEnd", "2026-02-01T00:00:00Z"),
                ("ChargePeriodStart", "2026-01-01T12:00:00Z"),
                ("ChargePeriodEnd", "2026-01-01T13:00:00Z"),
                ("ChargeCategory", "Usage"),
                ("ChargeClass", ""),
                ("ServiceCategory", "Compute"),
            ] {
                assert_eq!(charge[column], expected, "{column}");
            }
            let tags: Value = serde_json::from_str(&charge["Tags"]).expect("JSON");
            assert_eq!(
                tags["karpenter.sh/nodepool"].as_str().unwrap_or_default(),
                charge["x_NodePool"]
            );
            let spot = charge["PricingCategory"] == "Dynamic";
            let listed = number(charge, "ListCost") > number(charge, "EffectiveCost") + 1e-9;
            assert_eq!(spot, listed, "spot costs less than on demand: {charge:?}");
        }
        let columns: Vec<&String> = charges[0].keys().collect();
        assert!(columns.iter().all(|column| focus.csv.contains(column.as_str())));
    }
    insta::assert_snapshot!("focus", costs("workload").focus("123456789012").csv);
}
