//! The structures of request bodies, each with its JSON schema.

/// Declares the body of a request. All fields are optional, as [`Change`](crate::domain::change::Change) says, and have the names of the
/// structure in camel case, or those after `as`. The texts after `=` are their descriptions in the schema.
///
/// The macros of utoipa need three lines of attributes for each such field.
macro_rules! body {
    (
        $(#[$attribute:meta])*
        $visibility:vis struct $Name:ident {
            $($field:ident $(as $wire:literal)?: $Type:ty $(= $description:literal)?,)*
        }
    ) => {
        $(#[$attribute])*
        #[derive(Clone, Debug, Default, PartialEq, Eq, serde::Deserialize)]
        #[serde(rename_all = "camelCase", default)]
        $visibility struct $Name {
            $($(#[serde(rename = $wire)])? $field: $crate::domain::change::Change<$Type>,)*
        }

        impl utoipa::PartialSchema for $Name {
            fn schema() -> utoipa::openapi::RefOr<utoipa::openapi::Schema> {
                let mut object = utoipa::openapi::schema::ObjectBuilder::new();
                $(
                    let name = $crate::http::schema::name(stringify!($field), &[$($wire)?]);
                    let schema = $crate::http::schema::optional::<$Type>(&[$($description)?]);
                    object = object.property(name, schema);
                )*
                object.into()
            }
        }

        impl utoipa::ToSchema for $Name {
            fn schemas(_: &mut Vec<(String, utoipa::openapi::RefOr<utoipa::openapi::Schema>)>) {}
        }
    };
}

pub(crate) use body;
