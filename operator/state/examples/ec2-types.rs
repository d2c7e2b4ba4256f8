//! Rewrites the table of instance types (`src/ec2/types.jsonl`) from what EC2 says. Types that
//! the answer lacks stay: no region has all of them.
//!
//! ```sh
//! aws ec2 describe-instance-types --output json |
//!   cargo run -p tenon-state --example ec2-types > types.jsonl
//! mv types.jsonl operator/state/src/ec2/types.jsonl
//! ```

use std::collections::BTreeMap;
use std::io::Write as _;

use tenon_state::ec2::describe::Answer;
use tenon_state::ec2::facts;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut answer: Answer = serde_json::from_reader(std::io::stdin().lock())?;
    let described = answer.types().ok_or("standard input holds no InstanceTypes")?;
    let known = facts::names().filter_map(facts::find);
    let types: BTreeMap<String, _> =
        known.chain(described).map(|info| (info.name.clone(), info)).collect();
    let mut stdout = std::io::stdout().lock();
    for info in types.values() {
        writeln!(stdout, "{}", serde_json::to_string(info)?)?;
    }
    Ok(())
}
