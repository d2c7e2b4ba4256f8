//! Launch templates: kept here as the parameters that made them, so that a launch uses exactly what
//! was asked for, and lists are complete.
//!
//! moto answers only the first 15 templates, without a token for the rest, and appends the
//! template's own tags to those of its instances.

use std::collections::BTreeMap;

use jiff::Timestamp;
use parking_lot::Mutex;

use super::request::Params;
use super::response::AwsError;

/// One launch template.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Template {
    /// `lt-…`.
    pub id: String,
    /// Name.
    pub name: String,
    /// When it was made.
    pub created: Timestamp,
    /// ARN of who made it.
    pub created_by: String,
    /// The version that `$Default` means.
    pub default_version: u64,
    /// The `LaunchTemplateData.*` parameters of each version, with names relative to it; version 1
    /// first.
    pub versions: Vec<Params>,
    /// The client token of the request that made it.
    pub client_token: Option<String>,
    /// Tags.
    pub tags: BTreeMap<String, String>,
}

impl Template {
    /// The number of the newest version.
    pub(crate) fn latest_version(&self) -> u64 {
        self.versions.len() as u64
    }

    /// The version that `text` names (`$Latest`, `$Default`, a number; nothing means the default),
    /// and its data.
    pub fn version(&self, text: Option<&str>) -> Result<(u64, &Params), AwsError> {
        let number = match text {
            None | Some("$Default" | "") => self.default_version,
            Some("$Latest") => self.latest_version(),
            Some(text) => text.parse().unwrap_or(0),
        };
        let data = usize::try_from(number)
            .ok()
            .and_then(|number| self.versions.get(number.checked_sub(1)?));
        data.map(|data| (number, data)).ok_or_else(|| {
            let version = text.unwrap_or_default();
            AwsError::new("InvalidLaunchTemplateId.VersionNotFound", format!("Could not find the specified version {version} for the launch template with ID {}.", self.id))
        })
    }
}

/// Every launch template, by ID.
#[derive(Debug, Default)]
pub struct Templates {
    by_id: Mutex<BTreeMap<String, Template>>,
}

impl Templates {
    /// All, by ID.
    pub fn all(&self) -> Vec<Template> {
        self.by_id.lock().values().cloned().collect()
    }

    /// One, by ID.
    pub fn get(&self, id: &str) -> Option<Template> {
        self.by_id.lock().get(id).cloned()
    }

    /// One, by name.
    pub fn by_name(&self, name: &str) -> Option<Template> {
        self.by_id.lock().values().find(|template| template.name == name).cloned()
    }

    /// The template that a call names by `LaunchTemplateId` or `LaunchTemplateName`.
    pub(crate) fn named_by(&self, params: &Params) -> Result<Template, AwsError> {
        match (params.get("LaunchTemplateId"), params.get("LaunchTemplateName")) {
            (Some(id), _) => self.get(id).ok_or_else(|| missing_id(id)),
            (None, Some(name)) => self.by_name(name).ok_or_else(|| missing_name(name)),
            (None, None) => Err(AwsError::new(
                "MissingParameter",
                "The request must contain the parameter launchTemplateId or launchTemplateName",
            )),
        }
    }

    pub(super) fn insert(&self, template: Template) -> Result<(), AwsError> {
        let mut by_id = self.by_id.lock();
        if by_id.values().any(|other| other.name == template.name) {
            return Err(AwsError::new(
                "InvalidLaunchTemplateName.AlreadyExistsException",
                "Launch template name already in use.",
            ));
        }
        by_id.insert(template.id.clone(), template);
        Ok(())
    }

    pub(super) fn remove(&self, id: &str) {
        self.by_id.lock().remove(id);
    }

    /// Changes one; `false` if there is none of this ID.
    pub(super) fn update(&self, id: &str, change: impl FnOnce(&mut Template)) -> bool {
        self.by_id.lock().get_mut(id).map(change).is_some()
    }
}

pub(super) fn missing_id(id: &str) -> AwsError {
    AwsError::new(
        "InvalidLaunchTemplateId.NotFound",
        format!("The specified launch template, with template ID {id}, does not exist."),
    )
}

pub(super) fn missing_name(name: &str) -> AwsError {
    AwsError::new(
        "InvalidLaunchTemplateName.NotFoundException",
        format!("The specified launch template, with template name {name}, does not exist."),
    )
}
