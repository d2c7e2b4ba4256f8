//! Which NodePools launch machines for a pod, or why none does.

use super::{Solver, holds};
use crate::demands::Demand;
use crate::machine_specs::SpecId;
use crate::plan::Exclusion;
use crate::tables::templates::pool_name;

/// The number of NodePools whose reason for excluding a pod is reported.
pub(crate) const REASONS: usize = 100;

impl Solver<'_, '_> {
    /// The reasons that exclude a demand from templates none of which admits it.
    pub(crate) fn why_not_launchable(&mut self, demand: &Demand) -> Vec<(String, Exclusion)> {
        let problem = self.problem;
        let templates = (0..problem.tables.templates.len()).take(REASONS);
        let reasons = templates.filter_map(|template| {
            let reason = self.open(demand, template).err()?;
            Some((
                pool_name(&problem.tables, &problem.tables.templates[template]).to_owned(),
                reason,
            ))
        });
        reasons.collect()
    }

    /// The spec of a template with one pod of a demand on it.
    pub(super) fn opens(&mut self, demand: &Demand, template: usize) -> Option<SpecId> {
        let problem = self.problem;
        let shape = &problem.tables.shapes[demand.shape];
        // What is too large for every type needs no look at labels.
        let mut types = problem.tables.templates[template].types.clone();
        self.keep_fitting(&mut types, template, &shape.requests, &[]);
        if types.is_clear() {
            return None;
        }
        let base = self.specs.base(&problem.tables, template);
        let spec = self.specs.joined(&problem.tables, base, shape.class, demand.variant)?;
        holds(problem, &self.limits, &self.specs[spec], demand.shape).then_some(spec)
    }

    /// The reason of a pod that gets no spec because of the limit on specs: its size, if that
    /// excludes it.
    fn beyond_count(&self, base: SpecId, shape: usize) -> Exclusion {
        let shape = &self.problem.tables.shapes[shape];
        let mut types = self.specs[base].types.clone();
        self.keep_fitting(&mut types, self.specs[base].template, &shape.requests, &shape.ports);
        if types.is_clear() {
            return self.shortage(base, &shape.requests);
        }
        Exclusion::Pod(
            "pods require too many different things of machines to plan for all of them at once"
                .to_owned(),
        )
    }

    /// The same, or what excludes the demand from the template.
    pub(crate) fn open(&mut self, demand: &Demand, template: usize) -> Result<SpecId, Exclusion> {
        let problem = self.problem;
        let shape = &problem.tables.shapes[demand.shape];
        let base = self.specs.base(&problem.tables, template);
        let (class, variant) = (shape.class, demand.variant);
        let spec = self.specs.join(&problem.tables, base, class, variant);
        let spec = spec.map_err(|_| {
            let why = self.specs.why_not(&problem.tables, base, class, variant);
            why.unwrap_or_else(|| self.beyond_count(base, demand.shape))
        })?;
        let mut types = self.specs[spec].types.clone();
        self.keep_fitting(&mut types, template, &shape.requests, &shape.ports);
        if types.is_clear() {
            return Err(self.shortage(spec, &shape.requests));
        }
        self.limits.restrict(&problem.tables, template, &mut types)?;
        match self.lacking_values(spec, &types) {
            Some((key, required, found)) if self.is_strict() => Err(Exclusion::MinValues {
                key: problem.tables.symbols.key_name(key).to_owned(),
                required,
                found,
            }),
            _ => Ok(spec),
        }
    }

    /// Opens a machine of the first of some templates that takes a demand's pods. Else tells of so
    /// many of them why they don't.
    pub(crate) fn open_first<T>(
        &mut self,
        demand: &mut Demand,
        templates: impl IntoIterator<Item = usize>,
        told: usize,
        mut open: impl FnMut(&mut Self, &mut Demand, usize) -> Result<T, Exclusion>,
    ) -> Result<T, Vec<(String, Exclusion)>> {
        let tables = &self.problem.tables;
        let mut reasons = Vec::new();
        for template in templates {
            let tells = reasons.len() < told;
            if !tells && self.opens(demand, template).is_none() {
                continue;
            }
            match open(self, demand, template) {
                Ok(opened) => return Ok(opened),
                Err(reason) if tells => {
                    let pool = pool_name(tables, &tables.templates[template]).to_owned();
                    reasons.push((pool, reason));
                }
                Err(_) => {}
            }
        }
        Err(reasons)
    }
}
