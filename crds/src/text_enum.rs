//! A closed set of texts as a Rust enum: one table gives the variants, their texts and the schema's
//! `enum`.

/// Declares an enum whose variants are texts on the wire. Each gets `as_str`, `ALL`, `Display`,
/// `FromStr`, serde and a JSON schema that lists the texts in declaration order.
macro_rules! text_enum {
    ($(#[$meta:meta])* pub enum $name:ident { $($(#[$vmeta:meta])* $variant:ident = $text:literal,)+ }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
        pub enum $name {
            $($(#[$vmeta])* #[serde(rename = $text)] $variant,)+
        }

        impl $name {
            /// Every value, in the order of the schema.
            pub const ALL: &'static [Self] = &[$(Self::$variant),+];

            /// The text on the wire.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $text),+ }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad(self.as_str())
            }
        }

        impl std::str::FromStr for $name {
            type Err = $crate::text_enum::UnknownText;

            fn from_str(text: &str) -> Result<Self, Self::Err> {
                Self::ALL.iter().copied().find(|value| value.as_str() == text).ok_or_else(|| $crate::text_enum::UnknownText {
                    text: text.to_owned(),
                    allowed: Self::ALL.iter().map(|value| value.as_str()).collect(),
                })
            }
        }

        impl schemars::JsonSchema for $name {
            fn inline_schema() -> bool {
                true
            }

            fn schema_name() -> std::borrow::Cow<'static, str> {
                stringify!($name).into()
            }

            fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
                schemars::json_schema!({ "type": "string", "enum": [$($text),+] })
            }
        }
    };
}
pub(crate) use text_enum;

/// A text outside of a closed set.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not one of {}", allowed.join(", "))]
pub struct UnknownText {
    /// What was given.
    pub text: String,
    /// What is allowed.
    pub allowed: Vec<&'static str>,
}
