//! The JSON shape of policy documents: alternatives that the typed values turn into enums, and
//! lists that may be written as one value.

use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;

use serde::de::value::{MapAccessDeserializer, SeqAccessDeserializer};
use serde::de::{self, Deserializer, IntoDeserializer, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Serialize};

use super::{Actions, Effect, Principals, Resources, Version};

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", deny_unknown_fields)]
pub(super) struct Document {
    version: Option<Version>,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<String>,
    statement: OneOrMany<Statement>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", deny_unknown_fields)]
struct Statement {
    #[serde(skip_serializing_if = "Option::is_none")]
    sid: Option<String>,
    effect: Effect,
    #[serde(skip_serializing_if = "Option::is_none")]
    principal: Option<Principal>,
    #[serde(skip_serializing_if = "Option::is_none")]
    not_principal: Option<Principal>,
    #[serde(skip_serializing_if = "Option::is_none")]
    action: Option<OneOrMany<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    not_action: Option<OneOrMany<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    resource: Option<OneOrMany<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    not_resource: Option<OneOrMany<String>>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    condition: BTreeMap<String, BTreeMap<String, OneOrMany<Scalar>>>,
}

#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum Principal {
    Text(String),
    Named(NamedPrincipal),
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct NamedPrincipal {
    #[serde(rename = "AWS", default, skip_serializing_if = "OneOrMany::is_empty")]
    aws: OneOrMany<String>,
    #[serde(rename = "Service", default, skip_serializing_if = "OneOrMany::is_empty")]
    service: OneOrMany<String>,
    #[serde(rename = "Federated", default, skip_serializing_if = "OneOrMany::is_empty")]
    federated: OneOrMany<String>,
}

/// A list that may be written as its one element. Reading looks at what is there instead of trying
/// both, so that errors name the element at fault.
#[derive(Serialize)]
#[serde(untagged)]
enum OneOrMany<T> {
    One(T),
    Many(Vec<T>),
}

/// A condition value; IAM takes numbers and booleans for their text.
#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum Scalar {
    Text(String),
    Bool(bool),
    Number(serde_json::Number),
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for OneOrMany<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Either<T>(PhantomData<T>);

        impl<'de, T: Deserialize<'de>> Visitor<'de> for Either<T> {
            type Value = OneOrMany<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("one value or a list of values")
            }

            fn visit_str<E: de::Error>(self, value: &str) -> Result<Self::Value, E> {
                T::deserialize(value.into_deserializer()).map(OneOrMany::One)
            }

            fn visit_bool<E: de::Error>(self, value: bool) -> Result<Self::Value, E> {
                T::deserialize(value.into_deserializer()).map(OneOrMany::One)
            }

            fn visit_i64<E: de::Error>(self, value: i64) -> Result<Self::Value, E> {
                T::deserialize(value.into_deserializer()).map(OneOrMany::One)
            }

            fn visit_u64<E: de::Error>(self, value: u64) -> Result<Self::Value, E> {
                T::deserialize(value.into_deserializer()).map(OneOrMany::One)
            }

            fn visit_f64<E: de::Error>(self, value: f64) -> Result<Self::Value, E> {
                T::deserialize(value.into_deserializer()).map(OneOrMany::One)
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
                T::deserialize(MapAccessDeserializer::new(map)).map(OneOrMany::One)
            }

            fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<Self::Value, A::Error> {
                Vec::deserialize(SeqAccessDeserializer::new(list)).map(OneOrMany::Many)
            }
        }

        deserializer.deserialize_any(Either(PhantomData))
    }
}

impl<T> Default for OneOrMany<T> {
    fn default() -> Self {
        Self::Many(Vec::new())
    }
}

impl<T> OneOrMany<T> {
    fn is_empty(&self) -> bool {
        matches!(self, Self::Many(items) if items.is_empty())
    }

    fn into_vec(self) -> Vec<T> {
        match self {
            Self::One(item) => vec![item],
            Self::Many(items) => items,
        }
    }

    fn from_vec(mut items: Vec<T>) -> Self {
        match items.len() {
            1 => Self::One(items.remove(0)),
            _ => Self::Many(items),
        }
    }
}

impl TryFrom<Document> for super::Document {
    type Error = String;

    fn try_from(wire: Document) -> Result<Self, String> {
        let Document { version, id, statement } = wire;
        let statements =
            statement.into_vec().into_iter().map(TryInto::try_into).collect::<Result<_, _>>()?;
        Ok(Self { version: version.unwrap_or(Version::V2008), id, statements })
    }
}

impl From<super::Document> for Document {
    fn from(document: super::Document) -> Self {
        let super::Document { version, id, statements } = document;
        // Always a list, even of one: what every tool and every example writes.
        Self {
            version: Some(version),
            id,
            statement: OneOrMany::Many(statements.into_iter().map(Into::into).collect()),
        }
    }
}

impl TryFrom<Statement> for super::Statement {
    type Error = String;

    fn try_from(wire: Statement) -> Result<Self, String> {
        let Statement {
            sid,
            effect,
            principal,
            not_principal,
            action,
            not_action,
            resource,
            not_resource,
            condition,
        } = wire;
        let at = || {
            sid.as_deref()
                .map_or_else(|| "a statement".to_owned(), |sid| format!("statement {sid}"))
        };
        let actions = match (action, not_action) {
            (Some(only), None) => Actions::Only(only.into_vec()),
            (None, Some(but)) => Actions::AllBut(but.into_vec()),
            _ => return Err(format!("{} needs exactly one of Action and NotAction", at())),
        };
        let resources = match (resource, not_resource) {
            (Some(only), None) => Some(Resources::Only(only.into_vec())),
            (None, Some(but)) => Some(Resources::AllBut(but.into_vec())),
            (None, None) => None,
            (Some(_), Some(_)) => {
                return Err(format!("{} has both Resource and NotResource", at()));
            }
        };
        let principal = match (principal, not_principal) {
            (Some(only), None) => Some(Principals::Only(only.try_into()?)),
            (None, Some(but)) => Some(Principals::AllBut(but.try_into()?)),
            (None, None) => None,
            (Some(_), Some(_)) => {
                return Err(format!("{} has both Principal and NotPrincipal", at()));
            }
        };
        let conditions = condition
            .into_iter()
            .map(|(operator, keys)| {
                let keys = keys.into_iter().map(|(key, values)| {
                    (key, values.into_vec().into_iter().map(Scalar::into_text).collect())
                });
                (operator, keys.collect())
            })
            .collect();
        Ok(Self { sid, effect, principal, actions, resources, conditions })
    }
}

impl From<super::Statement> for Statement {
    fn from(statement: super::Statement) -> Self {
        let super::Statement { sid, effect, principal, actions, resources, conditions } = statement;
        let (principal, not_principal) = match principal {
            Some(Principals::Only(only)) => (Some(only.into()), None),
            Some(Principals::AllBut(but)) => (None, Some(but.into())),
            None => (None, None),
        };
        let (action, not_action) = match actions {
            Actions::Only(only) => (Some(OneOrMany::from_vec(only)), None),
            Actions::AllBut(but) => (None, Some(OneOrMany::from_vec(but))),
        };
        let (resource, not_resource) = match resources {
            Some(Resources::Only(only)) => (Some(OneOrMany::from_vec(only)), None),
            Some(Resources::AllBut(but)) => (None, Some(OneOrMany::from_vec(but))),
            None => (None, None),
        };
        let condition = conditions
            .into_iter()
            .map(|(operator, keys)| {
                let keys = keys.into_iter().map(|(key, values)| {
                    (key, OneOrMany::from_vec(values.into_iter().map(Scalar::Text).collect()))
                });
                (operator, keys.collect())
            })
            .collect();
        Self {
            sid,
            effect,
            principal,
            not_principal,
            action,
            not_action,
            resource,
            not_resource,
            condition,
        }
    }
}

impl TryFrom<Principal> for super::Principal {
    type Error = String;

    fn try_from(wire: Principal) -> Result<Self, String> {
        match wire {
            Principal::Text(text) if text == "*" => Ok(Self::Anyone),
            Principal::Text(text) => Err(format!(
                "the principal {text:?} is neither \"*\" nor an object with AWS, Service or Federated"
            )),
            Principal::Named(NamedPrincipal { aws, service, federated }) => Ok(Self::Named {
                aws: aws.into_vec(),
                service: service.into_vec(),
                federated: federated.into_vec(),
            }),
        }
    }
}

impl From<super::Principal> for Principal {
    fn from(principal: super::Principal) -> Self {
        match principal {
            super::Principal::Anyone => Self::Text("*".to_owned()),
            super::Principal::Named { aws, service, federated } => Self::Named(NamedPrincipal {
                aws: OneOrMany::from_vec(aws),
                service: OneOrMany::from_vec(service),
                federated: OneOrMany::from_vec(federated),
            }),
        }
    }
}

impl Scalar {
    fn into_text(self) -> String {
        match self {
            Self::Text(text) => text,
            Self::Bool(value) => value.to_string(),
            Self::Number(value) => value.to_string(),
        }
    }
}
